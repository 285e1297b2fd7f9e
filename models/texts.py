"""Texts as people read and write them: which are the same, and how a number is written."""

import unicodedata

_MARKS = ("P", "So", "Sk", "Cf", "Zs")
"""Unicode categories of marks, emoji, what colours or joins emoji, and spaces."""
_EMOJI_STYLES = "\ufe0e\ufe0f"
"""Invisible characters that choose between a symbol and an emoji."""


def fold_text(text: str) -> str:
    """Return the form of a text by which wordings are compared.

    Two texts have the same form if they differ in case, in white space, in marks or emoji at their
    end, or in how Unicode writes the same characters (NFKC). A text of marks alone keeps them.
    """
    composed = unicodedata.normalize("NFKC", text).casefold()
    folded = " ".join(unicodedata.normalize("NFKC", composed).split())
    end = len(folded)
    while end and _is_mark(folded[end - 1]):
        end -= 1
    return folded[:end] or folded


def write_count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as "1 candidate" or "2 candidates".

    Args:
        number: The number.
        noun: The noun, in the singular.
        plural: Its plural, unless that only has an s more.
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def shorten(text: str, most: int) -> str:
    """Return a text, or its first `most` characters and an ellipsis if it has more."""
    return text if len(text) <= most else f"{text[:most]}…"


def _is_mark(character: str) -> bool:
    return character in _EMOJI_STYLES or unicodedata.category(character).startswith(_MARKS)
