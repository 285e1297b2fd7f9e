"""Fits the fusion of the shipped model and its confidence with examples, as its training does.

It writes both into `models/default/turnwise.json`, in some minutes:

    python research/fusion.py CORPORA
"""

import sys
from pathlib import Path
from typing import cast

from turnwise.models import DEFAULT_MODEL
from turnwise.models.training.config import EncoderConfig, read_stages
from turnwise.models.training.corpora import finder
from turnwise.models.training.fusion import calibrate_examples

RECIPE = DEFAULT_MODEL.parent / "training" / "recipes" / "default.toml"

if __name__ == "__main__":
    stage = cast("EncoderConfig", read_stages(RECIPE)[-1])
    calibrate_examples(DEFAULT_MODEL, stage, finder([Path(sys.argv[1])]))
