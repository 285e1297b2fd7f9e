"""Utterances without end, each another one, of 8 to 16 words: nothing a cache could know."""

from collections.abc import Iterator
from itertools import count

_WHO = ["I", "my wife", "our group", "a colleague", "my parents", "the two of us"]
_WANTS = ["would like to move", "had to cancel", "cannot find", "wants to pay for", "forgot about"]
_WHAT = [
    "the double room",
    "the table by the window",
    "the parcel",
    "the early flight",
    "the visit",
]
_WHEN = ["next Friday", "on the third of May", "tomorrow night", "this weekend", "in two weeks"]
_ASKS = ["is that possible", "could you help with that", "what does it cost", "whom do I ask"]


def sayings(seed: int = 0) -> Iterator[str]:
    """Yield utterances; two seeds never share one."""
    for number in count():
        pick = [words[(number * step + seed) % len(words)] for words, step in _PARTS]
        who, wants, what, when, asks = pick
        yield f"{who} {wants} {what} {when}, case {seed} {number}, {asks}?"


_PARTS = [(_WHO, 1), (_WANTS, 3), (_WHAT, 7), (_WHEN, 11), (_ASKS, 13)]
