"""Texts that are longer than a model reads.

An utterance keeps its beginning and its end, where people say what they want. A candidate keeps its
beginning. `research/long_messages.py` measures which part of an utterance should be its end.
"""

from collections.abc import Sequence

from turnwise.models.roles import Role, RoleText

SHARE_OF_END = 0.75
"""The share of the word pieces that come from the end of an utterance."""
_SPARE = 1 / 32
"""The share of the word pieces that stays free. What is left of a word that was cut in two may have
more pieces than it had in the word."""


def keeps_ends(item: RoleText | str) -> bool:
    """Return whether a text keeps both ends: an utterance does; a text without a role does not."""
    return isinstance(item, RoleText) and item.role is not Role.AFTER


def cut_middle(text: str, spans: Sequence[tuple[int, int]], limit: int) -> str:
    """Return an utterance without the middle that a model does not read.

    The result is a text, so that any process that has the tokenizer reads the same word pieces.

    Args:
        text: The utterance with its prefix.
        spans: The first character of each of its word pieces and the one after its last; the
            special pieces at both ends are among the pieces.
        limit: The word pieces of the longest text that the model reads.
    """
    if len(spans) <= limit:
        return text
    at_end = round(limit * SHARE_OF_END)
    at_beginning = limit - at_end - round(limit * _SPARE)
    _, beginning_stops = spans[at_beginning - 1]
    end_starts, _ = spans[-at_end]
    return f"{text[:beginning_stops]} {text[end_starts:]}"
