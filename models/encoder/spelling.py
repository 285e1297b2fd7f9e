"""Typing errors in utterances, for models with a list of words.

The file `words.txt` in a model's folder lists the words that people write, the most frequent first.
A word of an utterance that the list lacks becomes the most frequent word of the list that is one
typing error away. Candidates stay as their authors wrote them. The list is a part of the model: its
fingerprint depends on it. `research/typing_errors.py` measures what it is good for.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Self

from turnwise.models.card import find_file
from turnwise.models.errors import ModelError

WORDS_FILE = "words.txt"

_WORD = re.compile(r"(?<![\w@./-])[^\W\d_]+(?:['\u2019][^\W\d_]+)*(?![\w@]|[./-]\w)")
"""A word, with apostrophes inside; not a part of a number, an address or a compound."""
_BEGINNINGS = ("▁", "Ġ")
"""Marks of the pieces that begin a word, in vocabularies that mark these instead of the others."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz'"
_ENDINGS = ("s", "es", "ed", "ing", "er", "ers", "ly", "'s")
_SHORTEST = 4
"""Letters of the shortest word in a list."""
_LONGEST = 24
_MOST_ERRORS = 20
"""Different words of a text that are corrected. A text with more unknown ones is something else,
such as a list of names, and would take long."""
_FEWEST_TEXTS = 3
"""Texts with a word, for it to be in a list."""
_RARER = 100
"""A word that is so many times rarer than one that is a typing error away is an error itself."""
_REMEMBERED = 256
"""Texts, since the parts of a turn ask for the same ones."""


class Spelling:
    """Corrects typing errors in utterances."""

    def __init__(self, words: Iterable[str]) -> None:
        """Take the words in lower case, the most frequent first."""
        self._words = list(dict.fromkeys(words))
        self._ranks = {word: rank for rank, word in enumerate(self._words)}
        self._remember = lru_cache(_REMEMBERED)(self._correct)

    @classmethod
    def of_model(cls, name: str | Path) -> Self | None:
        """Return the spelling of a model's folder; None if it has no list of words.

        Args:
            name: A folder, a folder inside a Python package, or a hub name.

        Raises:
            ModelError: The file cannot be read, or lists no words.
        """
        file = find_file(name, WORDS_FILE)
        if file is None:
            return None
        try:
            words = file.read_text(encoding="utf-8").split()
        except (OSError, ValueError) as error:
            raise ModelError(f"model '{name}': {WORDS_FILE} cannot be read: {error}") from error
        if not words:
            raise ModelError(f"model '{name}': {WORDS_FILE} lists no words")
        return cls(words)

    @classmethod
    def of_vocabulary(cls, pieces: Mapping[str, int]) -> Self:
        """Return the spelling of a vocabulary's whole words; it has the frequent ones first.

        Args:
            pieces: The index of each word piece.
        """
        ordered = sorted(pieces, key=pieces.__getitem__)
        marked = [piece[1:] for piece in ordered if piece[:1] in _BEGINNINGS]
        return cls(each for each in marked or ordered if each.isalpha() and _is_spelled(each))

    def with_words_of(self, texts: Iterable[str]) -> "Spelling":
        """Return the spelling of a list that has the words of texts first.

        Words that are probably errors are left out: those in few texts, and those that are far
        rarer than a word that is one typing error away.
        """
        counts = Counter[str]()
        for text in texts:
            counts.update(dict.fromkeys(map(_lower, _WORD.findall(text)), 1))

        def is_right(word: str, count: int) -> bool:
            if word in self._ranks:
                return True
            if count < _FEWEST_TEXTS or not _is_spelled(word):
                return False
            return all(counts[each] <= _RARER * count for each in _one_error_away(word))

        said = [word for word, count in counts.most_common() if is_right(word, count)]
        return Spelling([*said, *self._words])

    def save(self, folder: Path) -> None:
        """Write the list of words into a model's folder."""
        (folder / WORDS_FILE).write_text(self.to_text() + "\n", encoding="utf-8")

    def to_text(self) -> str:
        """Return the list of words, which is equal for equal lists."""
        return "\n".join(self._words)

    def correct(self, text: str) -> str:
        """Return an utterance without the typing errors of its words.

        A word with a capital inside of a sentence is a name, and stays. A text in which more than
        half of three or more words are unknown is in another language, and stays as well.
        """
        return self._remember(text)

    def _correct(self, text: str) -> str:
        found = list(_WORD.finditer(text))
        unknown = {lower for each in found if not self._is_known(lower := _lower(each[0]))}
        if not unknown or len(unknown) > min(_MOST_ERRORS, max(2, len(found) // 2)):
            return text
        return _WORD.sub(self._replace, text)

    def _replace(self, found: re.Match[str]) -> str:
        word = _lower(found[0])
        if self._is_known(word) or _is_name(found):
            return found[0]
        return self._find_closest(word) or found[0]

    def _is_known(self, word: str) -> bool:
        if not _is_spelled(word) or word in self._ranks:
            return True
        stems = (word.removesuffix(ending) for ending in _ENDINGS if word.endswith(ending))
        return any(len(stem) >= _SHORTEST and stem in self._ranks for stem in stems)

    def _find_closest(self, word: str) -> str | None:
        listed = (each for each in _one_error_away(word) if each in self._ranks)
        return min(listed, key=self._ranks.__getitem__, default=None)


def _lower(word: str) -> str:
    return word.lower().replace("\u2019", "'")


def _is_spelled(word: str) -> bool:
    """Return whether a word may be in a list: one of ASCII letters, neither short nor very long."""
    return _SHORTEST <= len(word) <= _LONGEST and word.isascii()


def _is_name(found: re.Match[str]) -> bool:
    word = found[0]
    if word.islower():
        return False
    before = found.string[: found.start()].rstrip()
    begins_sentence = not before or before[-1] in ".!?"
    return not (begins_sentence and word[1:].islower())


def _one_error_away(word: str) -> Iterator[str]:
    """Yield the texts that one typing error makes of a word; the first letter stays.

    The error leaves out a letter, adds one, types another one, or swaps two neighbours.
    """
    for index in range(1, len(word) + 1):
        before = word[:index]
        rest = word[index:]
        yield from (before + letter + rest for letter in _LETTERS)
        if rest:
            yield before + rest[1:]
            yield from (before + letter + rest[1:] for letter in _LETTERS)
        if len(rest) > 1:
            yield before + rest[1] + rest[0] + rest[2:]
