"""From a session as it was read to one with other posts: what holds, and what is encoded."""

import asyncio
from dataclasses import dataclass
from functools import cached_property
from time import time_ns

from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.scores import rows
from turnwise.service.selection.context import Histories
from turnwise.service.sessions.store import Answered, Change, Session
from turnwise.service.sessions.turns import Turn, unchanged, utterances

_AT_ONCE = 8
"""Rows that are worked out before another thread would have begun."""


@dataclass(frozen=True, slots=True)
class NewVectors:
    """What a step adds to the vectors that are kept.

    Attributes:
        first: (m, d) [B1] of all utterances but the last at least, the kept ones included; (0, d)
            of an encoder without pairs.
        second: (k, d) [B2] of the utterances that had none.
        rows: (k, d) their rows.
    """

    first: Float32
    second: Float32
    rows: Float32


@dataclass(frozen=True)
class Step:
    """A session before and after.

    Attributes:
        base: The session as it was read; None where there is none.
        posts: The posts after, which go on where those before end, or end earlier.
        responder: Who says the candidates.
        fingerprint: Of the model that encodes now.
    """

    base: Session | None
    posts: tuple[Turn, ...]
    responder: str
    fingerprint: str

    @cached_property
    def said(self) -> tuple[Utterance, ...]:
        """The utterances after."""
        return utterances(self.posts)

    @cached_property
    def _said_before(self) -> tuple[Utterance, ...]:
        return utterances(self.base.posts) if self.base else ()

    @cached_property
    def same(self) -> int:
        """How many leading utterances have vectors, if any, that still hold."""
        if self.base is None or self.base.fingerprint != self.fingerprint:
            return 0
        return unchanged(self._said_before, self.said)

    @property
    def keep_first(self) -> int:
        """How many [B1] are kept."""
        return min(len(self.base.first), self.same) if self.base else 0

    @property
    def keep_complete(self) -> int:
        """How many [B2] and rows are kept."""
        return min(self.base.complete, self.same) if self.base else 0

    @cached_property
    def epoch(self) -> int:
        """The epoch after: another one where an utterance that may have vectors changed.

        A new session never begins with one that a deleted session of its name had.
        """
        if self.base is None:
            return time_ns() // 1000
        return self.base.epoch + int(self.same < len(self._said_before))

    async def encode(self, histories: Histories) -> NewVectors:
        """Encode what the utterances lack: of a plain turn, [B2] of the newest."""
        keep = self.keep_complete
        none = histories.none
        first, second = await histories.complete(
            self.said[:-1],
            self.said[keep:],
            self.responder,
            self.base.first[: self.keep_first] if self.base else none,
            none,
        )
        if len(second) <= _AT_ONCE:
            return NewVectors(first, second, rows(first, second, keep))
        return NewVectors(first, second, await asyncio.to_thread(rows, first, second, keep))

    def change(self, new: NewVectors, answered: Answered | None = None) -> Change:
        """Return what makes the session before into the one after."""
        kept = min(len(self.base.posts), len(self.posts)) if self.base else 0
        return Change(
            epoch=self.epoch,
            responder=self.responder,
            fingerprint=self.fingerprint,
            keep_posts=kept,
            posts=self.posts[kept:],
            keep_first=self.keep_first,
            first=new.first[self.keep_first :],
            keep_complete=self.keep_complete,
            second=new.second,
            rows=new.rows,
            answered=answered,
        )
