"""Fits the space in which a trained encoder compares a message with examples."""

from itertools import chain
from pathlib import Path

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.encoder.example_space import ExampleSpace
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.confidence import texts_of
from turnwise.models.roles import Role
from turnwise.models.training.config import EncoderConfig
from turnwise.models.training.corpora import Find

UTTERANCES = 20_000
"""Utterances whose mean and covariance the space has."""
WORDS = range(3, 31)
"""Words of an utterance that is drawn: a shorter one means little alone."""
POWER = 0.25
"""Power of the inverse covariance: 0.5 whitens completely, 0 not at all."""
_LEAST_VARIANCE = 1e-5


def add_example_space(folder: Path, config: EncoderConfig, find: Find) -> None:
    """Fit the space of a trained encoder on the corpora of its run, and write it into its folder.

    Args:
        folder: The folder of the model.
        config: The run that trained it.
        find: Finds its files.
    """
    dialogues = (read_dialogues(find(corpus.path), corpus.format) for corpus in config.data)
    texts = sorted(texts_of(chain.from_iterable(dialogues)))
    # A language without spaces has no text of several words.
    texts = [text for text in texts if len(text.split()) in WORDS] or texts
    drawn = np.random.default_rng(0).permutation(len(texts))[:UTTERANCES]
    encoder = UtteranceEncoder(folder, precision=config.precision)
    said = encoder.encode([texts[index] for index in drawn], Role.SAID)
    fit_example_space(said).save(folder)


def fit_example_space(said: Float32) -> ExampleSpace:
    """Return the space of (n, d) utterances, in which they are partly whitened.

    W is the inverse of their covariance, to the power of `POWER`.
    """
    mean = said.mean(0)
    variances, axes = np.linalg.eigh(np.cov((said - mean).T))
    shrunk = (np.maximum(variances, 0) + _LEAST_VARIANCE) ** -POWER
    linear = (axes * shrunk) @ axes.T
    return ExampleSpace(mean, (linear / np.abs(linear).max()).astype(np.float32))
