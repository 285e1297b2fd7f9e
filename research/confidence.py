"""Calibrates the shipped model again, as the end of its training does, or measures its confidence.

`--fit` writes the calibration into `models/default/turnwise.json`. Without it, the confidences are
measured on validation dialogues that neither the fit nor the training use, with pools of 20, 1,000
and 100,000:

    python research/confidence.py --data CORPORA [--fit] [--files sgd/validation.jsonl.xz ...]

Encoding 100,000 texts takes some minutes on two cores.
"""

import argparse
import random
from itertools import chain
from pathlib import Path
from typing import cast

from turnwise.models import DEFAULT_MODEL
from turnwise.models.confidence import Calibration
from turnwise.models.data import Dialogue
from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.confidence import (
    SIZES,
    Bank,
    confidence_metrics,
    make_searches,
    texts_of,
)
from turnwise.models.training.calibration import calibrate
from turnwise.models.training.config import EncoderConfig, read_stages
from turnwise.models.training.corpora import Find, finder, read_source, validation_texts

RECIPE = DEFAULT_MODEL.parent / "training" / "recipes" / "default.toml"
WITHIN = (
    "sgd",
    "multiwoz_part",
    "woz2_en",
    "camrest676",
    "casino",
    "ubuntu_irc",
    "topical_chat",
    "synthetic_persona_chat",
)
OUTSIDE = "dailydialog_detok"
FILES = [f"{corpus}/validation.jsonl.xz" for corpus in (*WITHIN, OUTSIDE)]
CONTEXTS = 800
DIALOGUES = 150
"""Dialogues that are drawn from each file."""


def measure(config: EncoderConfig, find: Find, files: list[str]) -> None:
    encoder = UtteranceEncoder(precision=config.precision)
    corpora = (read_dialogues(find(corpus.path), corpus.format) for corpus in config.data)
    bank = Bank.of(encoder, texts_of(chain.from_iterable(corpora)), max(SIZES))
    used = {*validation_texts(config.validation, find)}
    used |= {d.texts for corpus in config.data for d in read_source(corpus, find)}
    for file in files:
        left = [d for d in read_dialogues(find(file)) if d.texts not in used]
        drawn: list[Dialogue] = random.Random(0).sample(left, min(len(left), DIALOGUES))  # noqa: S311
        answers = make_searches(encoder, drawn, bank, contexts=CONTEXTS).run(SIZES)
        calibration = cast("Calibration", encoder.calibration)
        for size in (None, *SIZES):
            chosen = answers if size is None else answers[answers.size == size]
            metrics = confidence_metrics(calibration, chosen)
            named = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items())
            print(f"{file}  {size or 'all sizes'}  {named}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--files", nargs="+", default=FILES)
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    stage = cast(EncoderConfig, read_stages(RECIPE)[-1])
    found = finder(options.data)
    if options.fit:
        calibrate(DEFAULT_MODEL, stage, found)
    else:
        measure(stage, found, options.files)
