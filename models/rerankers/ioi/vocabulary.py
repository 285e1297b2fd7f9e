"""The words of a text, the vocabulary of a corpus, and word2vec vectors for it.

Signs such as commas are words here, as IoI reads them; BM25 in `evaluation` counts none.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.errors import ModelError, TrainingError
from turnwise.models.texts import write_count

PADDING = 0
"""The id of padding."""
UNKNOWN = 1
"""The id of words outside the vocabulary."""
FIRST = 2
"""The id of the vocabulary's first word."""

_WORD = re.compile(r"\w+|[^\w\s]")


def words_and_signs(text: str) -> list[str]:
    """Return the lower-cased words and signs, the same for "don't" as for the spaced "don ' t"."""
    return _WORD.findall(text.lower())


def has_more_words(limit: int, text: str) -> bool:
    """Return whether a text has more words and signs than a limit."""
    return len(text) > limit and len(words_and_signs(text)) > limit


@dataclass(frozen=True)
class Vocabulary:
    """Words by id, from `FIRST`; padding and unknown words have the ids before it."""

    words: tuple[str, ...]

    def __len__(self) -> int:
        return FIRST + len(self.words)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words, FIRST)}

    def ids(self, text: str, limit: int) -> list[int]:
        """Return the ids of a text's first `limit` words; an empty text is one unknown word."""
        found = [self._ids.get(word, UNKNOWN) for word in words_and_signs(text)[:limit]]
        return found or [UNKNOWN]

    def save(self, path: Path) -> None:
        """Write the words as JSON."""
        path.write_text(json.dumps(self.words, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a vocabulary that `save` wrote.

        Raises:
            ModelError: The file cannot be read or holds no list of words.
        """
        try:
            words = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(f"'{path}' cannot be read: {error}") from error
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ModelError(f"'{path}' is not a list of words")
        return cls(tuple(words))


def word_vectors(
    texts: Iterable[str], dimension: int, *, min_count: int, epochs: int, seed: int
) -> tuple[Vocabulary, Float32]:
    """Learn a vocabulary and its vectors by word2vec (skip-gram with negative sampling).

    Args:
        texts: The corpus; each text is a sentence.
        dimension: Length of a vector.
        min_count: Number of times that a word must occur to have an id.
        epochs: Passes over the corpus.
        seed: The same seed gives the same vectors.

    Returns:
        The vocabulary, most frequent word first, and its (V, dimension) float32 vectors. Those of
        padding and of unknown words are zero; training changes the latter.

    Raises:
        TrainingError: No word occurs so often.
    """
    from gensim.models import (  # type: ignore[import-untyped] # noqa: PLC0415 - an extra
        Word2Vec,
    )

    sentences = [words_and_signs(text) for text in texts]
    model = Word2Vec(
        vector_size=dimension, min_count=min_count, sg=1, seed=seed, workers=1, epochs=epochs
    )
    model.build_vocab(sentences)
    if not model.wv.index_to_key:
        raise TrainingError(
            "word_vectors.min_count: no word of the corpora occurs "
            f"{write_count(min_count, 'time')}"
        )
    model.train(sentences, total_examples=model.corpus_count, epochs=epochs)
    learned: Float32 = model.wv.vectors
    padded = np.concatenate([np.zeros((FIRST, dimension), np.float32), learned])
    return Vocabulary(tuple(model.wv.index_to_key)), padded
