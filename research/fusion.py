"""Fits how the shipped model uses examples, as its training does.

It writes the space of examples into `models/default`, and the fusion and the confidence with
examples into its card, in some minutes. A new space needs a new card (`turnwise card`):

    python research/fusion.py CORPORA
    turnwise card models/default
"""

import sys
from pathlib import Path
from typing import cast

from turnwise.models import DEFAULT_MODEL
from turnwise.models.training.config import EncoderConfig, read_stages
from turnwise.models.training.corpora import finder
from turnwise.models.training.example_space import add_example_space
from turnwise.models.training.fusion import calibrate_examples

RECIPE = DEFAULT_MODEL.parent / "training" / "recipes" / "default.toml"

if __name__ == "__main__":
    stage = cast("EncoderConfig", read_stages(RECIPE)[-1])
    find = finder([Path(sys.argv[1])])
    add_example_space(DEFAULT_MODEL, stage, find)
    calibrate_examples(DEFAULT_MODEL, stage, find)
