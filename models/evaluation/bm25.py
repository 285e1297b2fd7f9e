"""BM25 Okapi: word overlap, the baseline that an encoder has to beat."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32, Float64

K1 = 1.5
B = 0.75

_WORD = re.compile(r"\w+")


class BM25:
    """An inverted index over documents, with weights computed once.

    The weight of a word w in a document of length n is (Robertson and Zaragoza, 2009)
    `idf(w) tf (K1 + 1) / (tf + K1 (1 - B + B n / mean n))`, with the idf that stays positive,
    `log(1 + (N - df + 0.5) / (df + 0.5))`.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        self._size = len(documents)
        counts = [Counter(plain_words(document)) for document in documents]
        lengths = np.array([count.total() for count in counts], np.float64)
        normal = K1 * (1 - B + B * lengths / max(float(lengths.mean()), 1e-9))
        postings: dict[str, list[tuple[int, int]]] = {}
        for index, count in enumerate(counts):
            for word, frequency in count.items():
                postings.setdefault(word, []).append((index, frequency))
        self._postings = {
            word: _weigh(np.array(entries), normal) for word, entries in postings.items()
        }

    def scores(self, query: str) -> Float32:
        """Return the (N,) scores of all documents; a word counts as often as the query has it."""
        found = [self._postings[word] for word in plain_words(query) if word in self._postings]
        if not found:
            return np.zeros(self._size, np.float32)
        indices = np.concatenate([indices for indices, _ in found])
        weights = np.concatenate([weights for _, weights in found])
        return np.bincount(indices, weights, self._size).astype(np.float32)


def plain_words(text: str) -> list[str]:
    """Return the lower-cased words of a text, without punctuation."""
    return _WORD.findall(text.lower())


def _weigh(entries: NDArray[np.intp], normal: Float64) -> tuple[NDArray[np.intp], Float64]:
    indices, frequency = entries.T
    idf = np.log1p((len(normal) - len(indices) + 0.5) / (len(indices) + 0.5))
    return indices, idf * frequency * (K1 + 1) / (frequency + normal[indices])
