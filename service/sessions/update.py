"""An update of a session, as a value: the texts to encode, and the change to commit."""

from dataclasses import dataclass
from functools import cached_property
from time import time_ns

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.scores import rows
from turnwise.service.sessions.store import Answered, Change, Session
from turnwise.service.sessions.turns import Turn, unchanged, utterances


@dataclass(frozen=True, slots=True)
class EncodedContext:
    """A context of n utterances with its vectors.

    Attributes:
        texts: Of its utterances.
        first: (n or n - 1, d) [B1]; (0, d) of an encoder without pairs.
        second: (n, d) [B2]; only the newest where the session was read without [B2].
        rows: The newest rows, at least one more than the aggregation sums where there are more.
    """

    texts: list[str]
    first: Float32
    second: Float32
    rows: Float32


@dataclass(frozen=True, slots=True)
class NewVectors:
    """The vectors that an update adds to the kept ones.

    Attributes:
        first: (m, d) [B1]; (0, d) of an encoder without pairs.
        second: (k, d) [B2].
        rows: (k, d) rows of the same utterances.
    """

    first: Float32
    second: Float32
    rows: Float32

    @classmethod
    def none(cls, dimension: int) -> "NewVectors":
        """Return no vectors."""
        empty = np.empty((0, dimension), np.float32)
        return cls(empty, empty, empty)


@dataclass(frozen=True)
class Update:
    """A session as it was read, and its turns from now on.

    Attributes:
        base: The session as it was read; None where there is none.
        turns: The turns after: those before and new ones, or fewer than before.
        responder: The speaker who says the candidates.
        fingerprint: Of the model that encodes now.
    """

    base: Session | None
    turns: tuple[Turn, ...]
    responder: str
    fingerprint: str

    @cached_property
    def utterances(self) -> tuple[Utterance, ...]:
        """The utterances after."""
        return utterances(self.turns)

    @property
    def without_first(self) -> tuple[Utterance, ...]:
        """The utterances whose [B1] must be encoded. The last one's is not needed for its row."""
        return self.utterances[:-1][self._keep_first :]

    @property
    def without_second(self) -> tuple[Utterance, ...]:
        """The utterances whose [B2] must be encoded: of a plain turn, the new one."""
        return self.utterances[self._keep_complete :]

    @cached_property
    def epoch(self) -> int:
        """The epoch after, which differs where an utterance that may have vectors changed.

        A new session never gets the epoch of a deleted session with its name.
        """
        if self.base is None:
            return time_ns() // 1000
        return self.base.epoch + int(self._same < len(self._utterances_before))

    def new_vectors(self, first: Float32, second: Float32) -> NewVectors:
        """Return the new vectors with their rows.

        Args:
            first: [B1] of `without_first`; (0, d) of an encoder without pairs.
            second: [B2] of `without_second`.
        """
        return NewVectors(first, second, rows(self._first(first), second, self._keep_complete))

    def context(self, new: NewVectors) -> EncodedContext:
        """Return the whole context: the kept vectors and the new ones."""
        texts = [utterance.text for utterance in self.utterances]
        if self.base is None:
            return EncodedContext(texts, new.first, new.second, new.rows)
        dropped = self.base.complete - self._keep_complete
        kept_rows = self.base.rows[: max(len(self.base.rows) - dropped, 0)]
        return EncodedContext(
            texts=texts,
            first=self._first(new.first),
            second=np.concatenate([self.base.second[: self._keep_complete], new.second]),
            rows=np.concatenate([kept_rows, new.rows]),
        )

    def change(self, new: NewVectors, answered: Answered | None = None) -> Change:
        """Return the change that makes the session before into the one after."""
        kept = min(len(self.base.turns), len(self.turns)) if self.base else 0
        return Change(
            epoch=self.epoch,
            responder=self.responder,
            fingerprint=self.fingerprint,
            keep_turns=kept,
            turns=self.turns[kept:],
            keep_first=self._keep_first,
            first=new.first,
            keep_complete=self._keep_complete,
            second=new.second,
            rows=new.rows,
            answered=answered,
        )

    @cached_property
    def _utterances_before(self) -> tuple[Utterance, ...]:
        return utterances(self.base.turns) if self.base else ()

    @cached_property
    def _same(self) -> int:
        """How many leading utterances have vectors that are still valid, if they have any."""
        if self.base is None or self.base.fingerprint != self.fingerprint:
            return 0
        return unchanged(self._utterances_before, self.utterances)

    @property
    def _keep_first(self) -> int:
        return min(len(self.base.first), self._same) if self.base else 0

    @property
    def _keep_complete(self) -> int:
        """How many [B2] and rows are kept."""
        return min(self.base.complete, self._same) if self.base else 0

    def _first(self, new: Float32) -> Float32:
        """Return the kept [B1] and the new ones."""
        return np.concatenate([self.base.first[: self._keep_first], new]) if self.base else new
