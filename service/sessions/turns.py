"""A conversation as posts and as the utterances that scores are about."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby, takewhile
from operator import attrgetter
from typing import NamedTuple

from turnwise.models.data import Utterance

_RUN = 800
"""Characters of a run of posts that are joined: some 200 word pieces, of the 256 that encoders
commonly read."""


class Turn(NamedTuple):
    """What was posted at once, and when (Unix seconds)."""

    speaker: str
    text: str
    at: float


def utterances(posts: Iterable[Turn]) -> tuple[Utterance, ...]:
    """Return what is scored: one speaker's consecutive posts are one utterance, as in training.

    Of a long run only the newest posts are, at least the last one: an encoder cuts a text that is
    too long at its end, which would be what was said last.
    """
    runs = groupby(posts, key=attrgetter("speaker"))
    return tuple(Utterance(speaker, _newest([post.text for post in run])) for speaker, run in runs)


def _newest(texts: list[str]) -> str:
    """Join the newest of texts, as many as stay within `_RUN`."""
    lengths = accumulate(len(text) + 1 for text in reversed(texts))
    kept = sum(1 for length in lengths if length <= _RUN)
    return " ".join(texts[-max(kept, 1) :])


def last_turns(posts: Sequence[Turn]) -> list[int]:
    """Return for each utterance the number, from 1, of its last post."""
    runs = groupby(range(len(posts)), key=lambda place: posts[place].speaker)
    return [max(places) + 1 for _, places in runs]


def unchanged(before: Sequence[Utterance], after: Sequence[Utterance]) -> int:
    """Return how many leading utterances are the same, so that their vectors still hold."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    return sum(1 for _ in same)
