"""The science of Turnwise: encoding, scores, planning, training and evaluation."""

from pathlib import Path

DEFAULT_MODEL = Path(__file__).parent / "default"
"""The folder of the shipped model. It is named here so that naming it does not load torch."""
