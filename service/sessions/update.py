"""The update of a session by a turn or an undo: the texts to encode, the change to commit.

It does no I/O. After the model changed, no kept vector counts, so every utterance is encoded again.
"""

from dataclasses import dataclass
from functools import cached_property
from time import time_ns

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.scores import KeptRows
from turnwise.service.sessions.store import Answered, Change, Offer, Session
from turnwise.service.sessions.turns import Turn, count_unchanged, join_turns


@dataclass(frozen=True, slots=True)
class NewVectors:
    """The vectors that an update adds to the kept ones, and the rows after it.

    Attributes:
        first: (m, d) [B1]; (0, d) of an encoder that does not encode it.
        encoded: (k, d) [B2]; see `store.py`.
        rows: The rows of all utterances after; None where they were not computed.
    """

    first: Float32
    encoded: Float32
    rows: KeptRows | None

    @classmethod
    def none(cls, dimension: int) -> "NewVectors":
        """Return no vectors."""
        empty = np.empty((0, dimension), np.float32)
        return cls(empty, empty, None)


@dataclass(frozen=True)
class Update:
    """A session as it was read, and its turns from now on.

    Attributes:
        base: The session as it was read; None where there is none.
        turns: The turns after the update: those before and new ones, or fewer than before.
        responder: The speaker who says the candidates.
    """

    base: Session | None
    turns: tuple[Turn, ...]
    responder: str

    @cached_property
    def utterances(self) -> tuple[Utterance, ...]:
        """The utterances after the update."""
        return join_turns(self.turns)

    @property
    def without_first(self) -> tuple[Utterance, ...]:
        """The utterances whose [B1] must be encoded; the row of the last one does not need it."""
        return self.utterances[:-1][self._keep_first :]

    @property
    def newest_without_first(self) -> tuple[Utterance, ...]:
        """The last utterance, unless its [B1] is kept: the next turn needs that [B1]."""
        return self.utterances[max(self._keep_first, len(self.utterances) - 1) :]

    @property
    def not_encoded(self) -> tuple[Utterance, ...]:
        """The utterances that must be encoded for their own rows; in a plain turn, the new one."""
        return self.utterances[self._keep_encoded :]

    @property
    def kept_rows(self) -> KeptRows | None:
        """The rows of the utterances whose vectors are kept; None where they must be computed."""
        if self.base is None or self.base.rows is None:
            return None
        dropped = self.base.complete - self._keep_encoded
        if dropped == 0:
            return self.base.rows
        return self.base.rows.without_last() if dropped == 1 else None

    @cached_property
    def epoch(self) -> int:
        """The epoch after the update: a new one if a changed utterance may have vectors.

        A new session never gets the epoch of a deleted session with its name.
        """
        if self.base is None:
            return time_ns() // 1000
        return self.base.epoch + int(self._changes_utterances)

    def first(self, new: Float32) -> Float32:
        """Return [B1] of the whole context: the kept vectors and the new ones."""
        return np.concatenate([self.base.first[: self._keep_first], new]) if self.base else new

    def encoded(self, new: Float32, start: int = 0) -> Float32:
        """Return the vectors of the utterances from `start` on: the kept ones and the new ones.

        A start before the end of the kept ones needs a session that was read with its vectors.
        """
        if self.base is None or start == self._keep_encoded:
            return new
        return np.concatenate([self.base.encoded[start : self._keep_encoded], new])

    def change(
        self, new: NewVectors, answered: Answered | None = None, offer: Offer | None = None
    ) -> Change:
        """Return the change to commit."""
        kept = min(len(self.base.turns), len(self.turns)) if self.base else 0
        return Change(
            epoch=self.epoch,
            responder=self.responder,
            keep_turns=kept,
            turns=self.turns[kept:],
            keep_first=self._keep_first,
            first=new.first,
            keep_encoded=self._keep_encoded,
            encoded=new.encoded,
            rows=new.rows,
            unchanged=self._unchanged if self._changes_utterances else None,
            answered=answered,
            offer=offer,
        )

    @cached_property
    def _utterances_before(self) -> tuple[Utterance, ...]:
        return join_turns(self.base.turns) if self.base else ()

    @cached_property
    def _unchanged(self) -> int:
        """The number of leading utterances whose vectors, if there are any, are still valid."""
        if self._has_another_responder:
            return 0
        return count_unchanged(self._utterances_before, self.utterances)

    @property
    def _has_another_responder(self) -> bool:
        """Whether the responder changes to a speaker who has spoken before.

        Then that speaker's utterances change their relation, so no vector is valid any more.
        """
        if self.base is None or self.responder == self.base.responder:
            return False
        return any(turn.speaker == self.responder for turn in self.base.turns)

    @property
    def _changes_utterances(self) -> bool:
        if self.base is None:
            return False
        return self.base.lost or self._unchanged < len(self._utterances_before)

    @property
    def _keep_first(self) -> int:
        return min(len(self.base.first), self._unchanged) if self.base else 0

    @property
    def _keep_encoded(self) -> int:
        """How many of the vectors that the encoder returned are kept."""
        return min(self.base.complete, self._unchanged) if self.base else 0
