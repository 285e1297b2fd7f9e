"""The scripts that a model's vocabulary knows, such as Latin or Cyrillic."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

_FEWEST = 1000
"""Word pieces of a script from which a vocabulary knows it. The shipped model has 26,000 pieces in
Latin letters, 488 Chinese characters, and fewer of each other script."""
_BYTES = "\u0120"
"""Begins words in a vocabulary of bytes, which shows no scripts."""
_LOOKED_AT = 1000
"""Characters of a text that are looked at."""
_LATIN = "LATIN"


class Scripts:
    """Tells whether a vocabulary knows the script of a text."""

    def __init__(self, pieces: Iterable[str]) -> None:
        """Count the word pieces of each script."""
        counts = Counter[str]()
        self._of_bytes = False
        for piece in pieces:
            if piece.startswith(_BYTES):
                self._of_bytes = True
            counts.update(islice(_scripts_of(piece), 1))
        self._known = {script for script, count in counts.items() if count >= _FEWEST}

    def knows(self, text: str) -> bool:
        """Return whether at least half of the letters and emoji of a text are in known scripts."""
        if self._of_bytes or not self._known:  # without a known script, the vocabulary is tiny
            return True
        looked_at = text[:_LOOKED_AT]
        if looked_at.isascii() and _LATIN in self._known:  # the name of each letter takes a while
            return True
        scripts = list(_scripts_of(looked_at))
        known = sum(script in self._known for script in scripts)
        return known >= len(scripts) / 2


def _scripts_of(text: str) -> Iterator[str]:
    """Yield the script of each letter, as the first word of its name, and "" for each emoji."""
    for character in text:
        if character.isalpha():
            yield unicodedata.name(character, "").partition(" ")[0]
        elif unicodedata.category(character) == "So":
            yield ""
