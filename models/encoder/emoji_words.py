"""Emoji as words, for models whose vocabulary lacks emoji.

The file `emoji.json` in a model's folder has the words of each emoji. Without it, a model reads
texts as they are. The words are a part of the model: its fingerprint depends on them.
`research/emoji_words.py` measures what they are good for.
"""

import json
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, TypeAdapter

from turnwise.models.card import find_file
from turnwise.models.errors import ModelError

EMOJI_FILE = "emoji.json"
_FILE = TypeAdapter(
    Annotated[dict[Annotated[str, Field(min_length=1, max_length=1)], str], Field(min_length=1)]
)
_BLOCKS = (range(0x2300, 0x2400), range(0x2600, 0x27C0), range(0x2B00, 0x2C00))
_PICTURES = range(0x1F300, 0x1FB00)
_VARIANTS = ("\ufe0f", *map(chr, range(0x1F3FB, 0x1F400)))
"""Characters that only change how an emoji looks: a selector, and tones of the skin."""


class EmojiWords:
    """Replaces emoji by words."""

    def __init__(self, words: Mapping[str, str]) -> None:
        """Take the words of each emoji; those of a character that is left out are empty."""
        self._words = dict(sorted(words.items()))
        self._spaced = str.maketrans({emoji: f" {name} " for emoji, name in self._words.items()})

    @classmethod
    def of_unicode(cls) -> Self:
        """Return the names that Unicode gives to emoji, as this Python knows them."""
        pictures = (chr(code) for block in (*_BLOCKS, _PICTURES) for code in block)
        named = {
            each: unicodedata.name(each, "").lower()
            for each in pictures
            if unicodedata.category(each) == "So"
        }
        return cls({**named, **dict.fromkeys(_VARIANTS, "")})

    @classmethod
    def of_model(cls, name: str | Path) -> Self | None:
        """Return the words in a model's folder; None if it has none.

        Args:
            name: A folder, a folder inside a Python package, or a hub name.

        Raises:
            ModelError: The file cannot be read.
        """
        try:
            file = find_file(name, EMOJI_FILE)
            return cls(_FILE.validate_json(file.read_bytes())) if file else None
        except (OSError, ValueError) as error:
            raise ModelError(f"model '{name}': {EMOJI_FILE} cannot be read: {error}") from error

    def save(self, folder: Path) -> None:
        """Write the words into a model's folder."""
        (folder / EMOJI_FILE).write_text(self.to_json() + "\n", encoding="utf-8")

    def to_json(self) -> str:
        """Return the words as JSON, which is equal for equal words."""
        return json.dumps(self._words, indent=0)

    def write(self, text: str) -> str:
        """Return a text with words in the place of its emoji; one without any stays as it is."""
        written = text.translate(self._spaced)
        return text if written == text else " ".join(written.split())
