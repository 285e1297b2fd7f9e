"""Turns as they were posted, and how they join into utterances, which the encoder reads."""

from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby, takewhile
from operator import attrgetter
from typing import NamedTuple

from pydantic_core import to_json

from turnwise.models.data import Utterance

_MOST_CHARACTERS = 800
"""Longest utterance that several turns are joined to: some 200 of the 256 word pieces that encoders
commonly read."""


class Turn(NamedTuple):
    """One message as it was posted.

    Attributes:
        speaker: The speaker.
        text: The text, as it was posted.
        at: Unix seconds.
        candidate: The id of the candidate that the responder said: the one that the turn names, or
            else the one that feedback on the turn before chose or edited last.
    """

    speaker: str
    text: str
    at: float
    candidate: str | None = None

    def to_json(self) -> bytes:
        """Return the turn as a session keeps it: an array, without a candidate that is None."""
        fields = (self.speaker, self.text, self.at)
        return to_json(fields if self.candidate is None else (*fields, self.candidate))


def join_turns(turns: Iterable[Turn]) -> tuple[Utterance, ...]:
    """Return the utterances: consecutive turns of one speaker joined, as in training.

    A long run of turns is cut to its newest turns, at least the last one. An encoder would cut the
    end of a text that is too long, which is the newest part.
    """
    runs = groupby(turns, key=attrgetter("speaker"))
    return tuple(
        Utterance(speaker, _join_newest([turn.text for turn in run])) for speaker, run in runs
    )


def _join_newest(texts: list[str]) -> str:
    """Join as many of the newest texts as fit into `_MOST_CHARACTERS`."""
    if len(texts) == 1:  # most utterances have one turn
        return texts[0]
    lengths = accumulate(len(text) + 1 for text in reversed(texts))
    kept = sum(1 for length in lengths if length - 1 <= _MOST_CHARACTERS)
    return " ".join(texts[-max(kept, 1) :])


def last_turns(turns: Sequence[Turn]) -> list[int]:
    """Return the number, from 1, of the last turn of each utterance."""
    runs = groupby(range(len(turns)), key=lambda index: turns[index].speaker)
    return [max(indexes) + 1 for _, indexes in runs]


def count_unchanged(before: Sequence[Utterance], after: Sequence[Utterance]) -> int:
    """Return how many leading utterances are equal, so that their vectors are still valid."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    return sum(1 for _ in same)
