"""A conversation as posts and as the utterances that scores are about."""

from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

from models.dialogue import Utterance, merge_runs


class Post(NamedTuple):
    """What was posted at once, and when (Unix seconds)."""

    speaker: str
    text: str
    at: float


def utterances(posts: Iterable[Post]) -> tuple[Utterance, ...]:
    """Return what is scored: one speaker's consecutive posts are one utterance, as in training."""
    return merge_runs(Utterance(post.speaker, post.text) for post in posts)


def last_turns(posts: Sequence[Post]) -> list[int]:
    """Return for each utterance the number, from 1, of its last post."""
    runs = groupby(range(len(posts)), key=lambda place: posts[place].speaker)
    return [max(places) + 1 for _, places in runs]


def unchanged(before: Sequence[Utterance], after: Sequence[Utterance]) -> int:
    """Return how many leading utterances are the same, so that their vectors still hold."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    return sum(1 for _ in same)
