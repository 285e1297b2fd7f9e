"""The science of Turnwise: encoding, scores, planning, training and evaluation."""

import os
from pathlib import Path

# Without it, ONNX Runtime reports its use to Microsoft. It reads the variable when it is loaded, so
# the variable is set here, before any other module.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

DEFAULT_MODEL = Path(__file__).parent / "default"
"""The folder of the shipped model. It is named here so that naming it does not load torch."""
