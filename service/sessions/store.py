"""The state of sessions in Redis: text is the truth, vectors are a cache of one model's.

A session is six keys with one hash tag: the hash `meta` (version, epoch, responder, fingerprint,
how many posts), and the lists `posts` (JSON), `first` ([B1], float16), `second` ([B2], float16),
`rows` (float32) and `answers` (to idempotency keys). Vectors belong to utterances, in order; any
list of them may end early, and what is missing is worked out from the text. The epoch changes when
an utterance that had vectors does, so that a late [B1] cannot land on another text.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from time import time, time_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike
from pydantic_core import from_json
from redis.asyncio import Redis

from turnwise.models.arrays import Float32
from turnwise.service.observe.metrics import Metrics
from turnwise.service.sessions.turns import Turn
from turnwise.service.state.redis import redis_errors

_log = logging.getLogger("turnwise.sessions")

ANSWERS_KEPT = 8
"""Answers to idempotency keys that a session remembers."""

_PARTS = ("meta", "posts", "first", "second", "rows", "answers")


class SessionKey(NamedTuple):
    """Which session: names that no other namespace can reach."""

    namespace: str
    id: str


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it was read.

    Attributes:
        version: Changes with every mutation.
        epoch: Changes when an utterance that had vectors changes.
        responder: Who says the candidates.
        fingerprint: Of the model whose vectors these are.
        posts: All of them.
        first: (m, d) [B1] of the first m utterances.
        second: (k, d) [B2] of the first k utterances; (0, d) where it was not asked for.
        rows: The newest rows that were asked for, of the first k utterances.
        complete: k, how many utterances have [B2] and row.
        expires_at: Unix seconds.
    """

    version: str
    epoch: int
    responder: str
    fingerprint: str
    posts: tuple[Turn, ...]
    first: Float32
    second: Float32
    rows: Float32
    complete: int
    expires_at: float


class _Read(NamedTuple):
    """What `read_session.lua` returns."""

    meta: list[Any]
    """Version, epoch, responder, fingerprint, how many posts: bytes; None of what is not there."""
    milliseconds: int
    """To live."""
    posts: list[bytes]
    first: list[bytes]
    second: list[bytes]
    rows: list[bytes]
    n_second: int
    """How many there are, wanted or not; so with rows."""
    n_rows: int
    answer: bytes | None

    @property
    def lost(self) -> bool:
        """Whether Redis has lost posts, or the hash beside them."""
        return int(self.meta[-1] or 0) != len(self.posts)

    def without_posts(self) -> "_Read":
        """Return what is left without posts, and without the vectors that were theirs."""
        return self._replace(posts=[], first=[], second=[], rows=[], n_second=0, n_rows=0)


class Answered(NamedTuple):
    """What was answered to an idempotency key, and to which body."""

    key: str
    """SHA-256 of the key, in hex."""
    body: str
    """SHA-256 of the request, in hex."""
    answer: str
    """The answer as JSON."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a mutation makes of a session: what is kept of each list, and what is put behind.

    Attributes:
        epoch: The session's from now on.
        responder: Who says the candidates.
        fingerprint: Of the model whose vectors are kept and come.
        keep_posts: Posts kept, from the oldest.
        posts: Posts that come.
        keep_first: [B1] kept.
        first: (., d) [B1] that come.
        keep_complete: [B2] and rows kept.
        second: (., d) [B2] that come.
        rows: (., d) rows that come, as many.
        answered: The answer to remember.
    """

    epoch: int
    responder: str
    fingerprint: str
    keep_posts: int
    posts: Sequence[Turn]
    keep_first: int
    first: Float32
    keep_complete: int
    second: Float32
    rows: Float32
    answered: Answered | None = None


class Sessions:
    """Reads and mutates sessions, one script each; StateUnavailable where Redis is away."""

    def __init__(self, redis: Redis, metrics: Metrics, *, dimension: int, ttl: int) -> None:
        """Take a connection.

        Args:
            redis: Where the sessions are.
            metrics: Counts the operations.
            dimension: d, of the model's vectors.
            ttl: Seconds that a session lives after its last mutation.
        """
        self._redis, self._metrics, self._ttl = redis, metrics, ttl
        self._dimension = dimension
        self._read, self._commit, self._put_first = (
            redis.register_script(
                (files("turnwise.service.sessions") / "scripts" / f"{name}.lua").read_text()
            )
            for name in ("read_session", "commit_session", "put_first")
        )

    async def read(
        self,
        session: SessionKey,
        *,
        rows: int | None = 0,
        second: bool = False,
        idempotency_key: str = "",
    ) -> tuple[Session | None, Answered | None]:
        """Read a session in one go.

        Args:
            session: Which.
            rows: How many of the newest rows are wanted; None for all.
            second: Whether [B2] is wanted.
            idempotency_key: SHA-256 of one, in hex, whose answer is wanted.

        Returns:
            The session, None where there is none; and what was answered to the key before.
        """
        wanted: list[str | int] = [-1 if rows is None else rows, int(second), idempotency_key]
        with redis_errors(self._metrics, "read") as outcome:
            found = _Read(*await self._read(keys=_keys(session), args=wanted))
            if found.answer:
                outcome.result = "replayed"
        answered = Answered(*found.answer.decode().split("\n", 2)) if found.answer else None
        if found.lost:
            self._metrics.state_lost.labels("session").inc()
            _log.warning("Redis lost a part of a session")
        return self._session(found), answered

    async def commit(self, session: SessionKey, base: Session | None, change: Change) -> bool:
        """Apply a change if the session still is as it was read; say whether it was applied."""
        lists: tuple[tuple[int, list[bytes]], ...] = (
            (change.keep_posts, [_dumped(post) for post in change.posts]),
            (change.keep_first, _blobs(change.first, np.float16)),
            (change.keep_complete, _blobs(change.second, np.float16)),
            (change.keep_complete, _blobs(change.rows, np.float32)),
        )
        arguments: list[str | int | bytes] = [
            base.version if base else "",
            # Never a number that a deleted session of this name had.
            str(int(base.version) + 1 if base else time_ns() // 1000),
            change.epoch,
            change.responder,
            change.fingerprint,
            self._ttl,
            "\n".join(change.answered) if change.answered else "",
            ANSWERS_KEPT,
            *(number for keep, blobs in lists for number in (keep, len(blobs))),
            *(blob for _, blobs in lists for blob in blobs),
        ]
        with redis_errors(self._metrics, "commit") as outcome:
            applied = bool(await self._commit(keys=_keys(session), args=arguments))
            if not applied:
                outcome.result = "conflict"
        if applied and base is None:
            self._metrics.sessions_created.inc()
        return applied

    async def put_first(self, session: SessionKey, epoch: int, place: int, vector: Float32) -> bool:
        """Add [B1] (d,) of the utterance at `place`, unless it is there or another one is."""
        keys = [key for key in _keys(session) if key.endswith(("meta", "first"))]
        arguments: list[int | bytes] = [epoch, place, vector.astype(np.float16).tobytes()]
        with redis_errors(self._metrics, "put_first") as outcome:
            applied = bool(await self._put_first(keys=keys, args=arguments))
            if not applied:
                outcome.result = "conflict"
        return applied

    async def delete(self, session: SessionKey) -> bool:
        """Delete a session; say whether there was one."""
        with redis_errors(self._metrics, "delete"):
            return bool(await self._redis.unlink(*_keys(session)))

    def _session(self, found: _Read) -> Session | None:
        version, epoch, responder, fingerprint, _ = found.meta
        if version is None:
            return None
        left = found.without_posts() if found.lost else found
        rows = self._vectors(left.rows, np.float32)
        whole = left.n_second == left.n_rows  # not where Redis evicted one of the two
        return Session(
            version=version.decode(),
            epoch=int(epoch) + found.lost,
            responder=responder.decode(),
            fingerprint=fingerprint.decode(),
            posts=tuple(Turn(*post) for post in from_json(b"[" + b",".join(left.posts) + b"]")),
            first=self._vectors(left.first, np.float16),
            second=self._vectors(left.second, np.float16),
            rows=rows if whole else rows[:0],
            complete=left.n_second if whole else 0,
            expires_at=time() + found.milliseconds / 1000,
        )

    def _vectors(self, blobs: list[bytes], dtype: DTypeLike) -> Float32:
        size = self._dimension * np.dtype(dtype).itemsize
        if any(len(blob) != size for blob in blobs):  # of a model of another size
            blobs = []
        stored = np.frombuffer(b"".join(blobs), dtype)
        return stored.reshape(-1, self._dimension).astype(np.float32)


def _keys(session: SessionKey) -> list[str]:
    return [f"tw:session:{{{session.namespace}/{session.id}}}:{name}" for name in _PARTS]


def _dumped(post: Turn) -> bytes:
    return json.dumps(post, ensure_ascii=False).encode()


def _blobs(vectors: Float32, dtype: DTypeLike) -> list[bytes]:
    return [vector.tobytes() for vector in vectors.astype(dtype)]
