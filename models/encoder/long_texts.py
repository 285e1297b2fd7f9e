"""Texts that are longer than a model reads.

An utterance keeps its beginning and its end, where people say what they want. A candidate keeps its
beginning. `research/long_messages.py` measures which part of an utterance should be its end.
"""

from collections.abc import Sequence

from turnwise.models.roles import Role, RoleText

SHARE_OF_END = 0.75
"""The share of the word pieces that come from the end of an utterance."""


def keeps_ends(item: RoleText | str) -> bool:
    """Return whether a text keeps both ends: an utterance does; a text without a role does not."""
    return isinstance(item, RoleText) and item.role is not Role.AFTER


def keep_ends(pieces: Sequence[int], limit: int) -> list[int]:
    """Return the first and the last word pieces of an utterance, at most `limit` in all.

    The special pieces at both ends, and the prefix, are among the pieces and stay.
    """
    if len(pieces) <= limit:
        return list(pieces)
    end = round(limit * SHARE_OF_END)
    return [*pieces[: limit - end], *pieces[len(pieces) - end :]]
