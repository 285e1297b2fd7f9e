"""Utterances whose similarities an encoder teaches, drawn so that near ones meet in a step.

Among utterances drawn at random, hardly any two mean about the same, and their similarities say
little. So a step has some utterances together with near neighbours of theirs.
"""

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import DataError
from turnwise.models.evaluation.metrics import Indices
from turnwise.models.roles import Role
from turnwise.models.texts import write_count
from turnwise.models.training.config import Similar, UtteranceCorpus
from turnwise.models.training.corpora import Find, Validating, read_distinct_texts

WORDS = range(3, 31)
"""Words of an utterance that is drawn."""
QUESTIONS = 0.6
"""Share of questions, if a corpus has enough."""
NEIGHBOURS = 6
"""Neighbours that an utterance has. A step takes half of them along with it."""
_AT_ONCE = 1000
"""Utterances whose neighbours are searched for at once."""


class SimilarUtterances:
    """Utterances, the teacher's vectors of them, and the neighbours of each."""

    def __init__(self, texts: Sequence[str], vectors: Float32, in_step: int) -> None:
        """Find the neighbours.

        Args:
            texts: n distinct utterances, more than `NEIGHBOURS`.
            vectors: (n, t) the teacher's unit rows.
            in_step: Utterances in a step.
        """
        self._in_step = in_step
        self._texts = texts
        self._vectors = vectors
        self._neighbours = find_nearest(vectors, NEIGHBOURS)

    @classmethod
    def read(cls, config: Similar, find: Find, validating: Validating, seed: int) -> Self:
        """Read the utterances of a configuration, and let its teacher encode them.

        Raises:
            DataError: A corpus is missing or malformed, or all have too few utterances together.
            ModelError: The teacher cannot be loaded.
        """
        rng = np.random.default_rng(seed)
        drawn = (draw_utterances(corpus, find, validating, rng) for corpus in config.data)
        texts = list(dict.fromkeys(text for of_corpus in drawn for text in of_corpus))
        if len(texts) <= NEIGHBOURS:
            found = write_count(len(texts), "utterance")
            what = f"only {found} of {WORDS[0]} to {WORDS[-1]} words: [similar] needs more"
            raise DataError(what, ", ".join(str(find(corpus.path)) for corpus in config.data))
        vectors = UtteranceEncoder(config.teacher).encode(texts, Role.AFTER)
        return cls(texts, vectors, config.utterances)

    def draw(self, rng: np.random.Generator) -> tuple[list[str], Float32]:
        """Return the utterances of a step, near ones among them, and the teacher's vectors."""
        chosen: dict[int, None] = {}
        while len(chosen) < min(self._in_step, len(self._texts)):
            index = int(rng.integers(len(self._texts)))
            near = rng.permutation(self._neighbours[index])[: NEIGHBOURS // 2]
            chosen |= dict.fromkeys([index, *near.tolist()])
        indices = list(chosen)[: self._in_step]
        return [self._texts[index] for index in indices], self._vectors[indices]


def draw_utterances(
    corpus: UtteranceCorpus, find: Find, validating: Validating, rng: np.random.Generator
) -> Iterator[str]:
    """Yield utterances of a corpus in random order, first its questions."""
    texts = read_distinct_texts(corpus, find, validating)
    texts = [text for text in texts if len(text.split()) in WORDS]
    shuffled = [texts[index] for index in rng.permutation(len(texts))]
    most_questions = round(QUESTIONS * corpus.utterances)
    questions = [text for text in shuffled if "?" in text][:most_questions]
    others = [text for text in shuffled if "?" not in text]
    yield from questions
    yield from others[: corpus.utterances - len(questions)]


def find_nearest(vectors: Float32, number: int) -> Indices:
    """Return (n, number) indices of each unit row's nearest other rows, in any order."""
    found = []
    for start in range(0, len(vectors), _AT_ONCE):
        part = vectors[start : start + _AT_ONCE]
        similarity = part @ vectors.T
        rows = np.arange(len(part))
        similarity[rows, start + rows] = -np.inf
        found.append(np.argpartition(-similarity, number - 1, axis=1)[:, :number])
    return np.concatenate(found)
