"""The science of Turnwise: encoding, scores, planning, training and evaluation."""

from pathlib import Path

DEFAULT_MODEL = Path(__file__).parent / "default"
"""The shipped model; named here, where that needs no torch."""
