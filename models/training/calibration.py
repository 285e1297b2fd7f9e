"""Calibration: fits the confidence of a trained encoder, and keeps it in its card."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np

from turnwise.models.card import update_card
from turnwise.models.confidence import Calibration, held_out, regress
from turnwise.models.data import Dialogue
from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.confidence import Bank, FirstCandidates, make_searches, texts_of
from turnwise.models.evaluation.metrics import auroc, calibration_error
from turnwise.models.training.config import EncoderConfig
from turnwise.models.training.corpora import Find, validation_dialogues

_log = logging.getLogger("turnwise.training")

CONTEXTS = 800
"""Contexts of each validation file, about."""
_SIZES = (20, 50, 200, 1_000, 5_000, 20_000, 100_000)
"""Sizes of the pools: their logarithms are evenly spread."""


def calibrate(folder: Path, config: EncoderConfig, find: Find) -> None:
    """Fit the confidence of a trained encoder on validation dialogues, and write it to its card.

    Each validation file has pools of its own texts. Texts of the training corpora fill large pools.
    The card gets no calibration if there are no validation files or no first candidate is right. It
    gets none for MaxSim either, which orders a short list by other scores than the search.

    Args:
        folder: The folder of the model.
        config: The run that trained it.
        find: Finds its files.
    """
    if not config.calibration_pool:
        return
    if config.aggregation.name == "max_sim" or not config.validation.paths:
        what = "it needs validation files, and another aggregation than max_sim"
        _log.warning("no confidence is fitted: %s", what)
        return
    largest = config.calibration_pool
    encoder = UtteranceEncoder(folder, precision=config.precision)
    files = validation_dialogues(config.validation, find, 1)
    corpora = (read_dialogues(find(corpus.path), corpus.format) for corpus in config.data)
    bank = Bank.of(encoder, texts_of(chain.from_iterable(corpora)), largest)
    calibration = fit_calibration(search_answers(encoder, list(files.values()), bank, largest))
    if calibration:
        update_card(folder, "confidence", calibration)
    else:
        what = "the true reply comes first in none, or all, of the validation contexts"
        _log.warning("no confidence is fitted: %s", what)


def search_answers(
    encoder: UtteranceEncoder, splits: Sequence[list[Dialogue]], bank: Bank, largest: int
) -> FirstCandidates:
    """Search pools of many sizes for the contexts of several splits."""
    sizes = [size for size in _SIZES if size < largest] + [largest]
    parts = []
    for dialogues in splits:
        searches = make_searches(encoder, dialogues, bank, contexts=CONTEXTS, largest=largest)
        parts.append(searches.run(sizes))
    return FirstCandidates.join(parts)


def fit_calibration(answers: FirstCandidates) -> Calibration | None:
    """Return the calibration of answers, with its figures; None where none, or all, are right.

    The figures are cross-validated: the calibration of each confidence was fitted on other
    dialogues. So a single dialogue has no figures.
    """
    if answers.right.all() or not answers.right.any():
        return None
    confidence = held_out(answers.features, answers.right, answers.dialogue)
    figures = {"answers": len(answers.right), "right": float(answers.right.mean())}
    if not np.isnan(confidence).any():
        figures["calibration_error"] = calibration_error(confidence, answers.right)
        figures["auroc"] = cast("float", auroc(confidence, answers.right))
    calibration = Calibration(*regress(answers.features, answers.right).tolist())
    return replace(calibration, fitted={k: round(v, 4) for k, v in figures.items()})
