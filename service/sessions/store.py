"""Sessions in Redis: the text is the truth, the vectors are a cache.

A session is five keys with one hash tag: the hash `meta` (version, epoch, responder, fingerprint,
number of posts, kept rows), and the lists `posts` (its turns as JSON), `first` ([B1], float16),
`second` (float16) and `answers` (to idempotency keys). `second` holds what the encoder returned for
each utterance: [B2], or of a model with heads [AFTER], from which both context roles follow; then
`first` is empty. The vectors are those of one model and belong to the utterances, in order. Each
list may end early: missing vectors are computed from the text again, and missing rows from the
vectors. The epoch changes when an utterance with vectors changes, so that neither a late [B1] nor
kept rows ever belong to another text.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from time import time, time_ns
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike
from pydantic_core import from_json
from redis.asyncio import Redis

from turnwise.models.arrays import Float32
from turnwise.models.scores import ROWS_KEPT, KeptRows
from turnwise.service.errors import SessionNotFound, StateUnavailable
from turnwise.service.observe.metrics import Metrics
from turnwise.service.sessions.turns import Turn
from turnwise.service.state.redis import redis_errors

T = TypeVar("T")

_log = logging.getLogger("turnwise.sessions")

ANSWERS_KEPT = 8
"""Answers to idempotency keys that a session keeps."""
_ATTEMPTS = 200
"""Attempts to commit a change: of concurrent writers, one succeeds in each round."""

_PARTS = ("meta", "posts", "first", "second", "answers")
_FORMER_PARTS = ("rows",)
"""Keys that version 0.1 wrote. They expire by themselves."""


class SessionKey(NamedTuple):
    """Identifies a session; other namespaces cannot reach it."""

    namespace: str
    id: str


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it was read.

    Attributes:
        version: Changes with every mutation.
        epoch: Changes when an utterance that had vectors changes.
        responder: The speaker who says the candidates.
        fingerprint: Of the model whose vectors these are.
        turns: All of them.
        first: (m, d) [B1] of the first m utterances.
        encoded: (k, d) [B2], or [AFTER] of a model with heads, of the first k utterances; (0, d)
            where it was neither requested nor needed for the rows.
        rows: Of the first k utterances; None where they must be computed from the vectors.
        complete: k, the number of utterances that were encoded.
        expires_at: Unix seconds.
    """

    version: str
    epoch: int
    responder: str
    fingerprint: str
    turns: tuple[Turn, ...]
    first: Float32
    encoded: Float32
    rows: KeptRows | None
    complete: int
    expires_at: float


class _Read(NamedTuple):
    """The reply of `read_session.lua`."""

    meta: list[Any]
    """Version, epoch, responder, fingerprint, number of posts, rows, and what they are of: bytes,
    or None where missing."""
    milliseconds: int
    """Time to live."""
    posts: list[bytes]
    first: list[bytes]
    encoded: list[bytes]
    complete: int
    """Length of the list in Redis, requested or not."""
    answer: bytes | None

    @property
    def lost(self) -> bool:
        """Whether Redis lost posts, or the hash beside them."""
        return int(self.meta[4] or 0) != len(self.posts)

    def without_posts(self) -> "_Read":
        """Return the reply without posts and their vectors."""
        return self._replace(posts=[], first=[], encoded=[], complete=0)


class Answered(NamedTuple):
    """The answer that was given to an idempotency key."""

    key: str
    """SHA-256 of the key, in hex."""
    body: str
    """SHA-256 of the request, in hex."""
    answer: str
    """The answer as JSON."""


@dataclass(frozen=True, slots=True)
class Change:
    """A mutation of a session: how many items of each list are kept, and what is appended.

    Attributes:
        epoch: The session's epoch after.
        responder: The speaker who says the candidates.
        fingerprint: Of the model whose vectors are kept and appended.
        keep_turns: Number of turns kept, from the oldest.
        turns: Turns appended.
        keep_first: Number of [B1] kept.
        first: (., d) [B1] appended.
        keep_complete: Number of vectors kept of those that the encoder returned.
        encoded: (k, d) such vectors appended.
        rows: Of all utterances after; None leaves them to the next reader.
        answered: The answer to keep for its idempotency key.
    """

    epoch: int
    responder: str
    fingerprint: str
    keep_turns: int
    turns: Sequence[Turn]
    keep_first: int
    first: Float32
    keep_complete: int
    encoded: Float32
    rows: KeptRows | None
    answered: Answered | None = None


class SessionStore:
    """Reads and changes sessions, each with one script; StateUnavailable without Redis."""

    def __init__(
        self, redis: Redis, metrics: Metrics, *, dimension: int, ttl: int, paired: bool
    ) -> None:
        """Register the scripts.

        Args:
            redis: Connection to the sessions.
            metrics: Counts the operations.
            dimension: d, of the model's vectors.
            ttl: Seconds that a session lives after its last change.
            paired: Whether the model's rows are sums over pairs.
        """
        self._redis, self._metrics, self._ttl = redis, metrics, ttl
        self._dimension, self._paired = dimension, paired
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
        encoded: bool = False,
        idempotency_key: str = "",
    ) -> tuple[Session | None, Answered | None]:
        """Read a session in one round trip.

        Args:
            session: The session.
            encoded: Whether to read the vectors that the encoder returned.
            idempotency_key: SHA-256 in hex of a key whose answer to read.

        Returns:
            The session, None where there is none; and the earlier answer to the key.
        """
        wanted: list[str | int] = [int(encoded), idempotency_key]
        with redis_errors(self._metrics, "session_read") as outcome:
            found = _Read(*await self._read(keys=_keys(session), args=wanted))
            if found.answer:
                outcome.result = "replayed"
        answered = Answered(*found.answer.decode().split("\n", 2)) if found.answer else None
        if found.lost:
            self._metrics.redis_losses.labels("session").inc()
            _log.warning("Redis lost a part of a session")
        return self._session(found), answered

    async def found(self, session: SessionKey, *, encoded: bool = False) -> Session:
        """Read a session that must exist; arguments as in `read`.

        Raises:
            SessionNotFound: There is no such session.
        """
        found, _ = await self.read(session, encoded=encoded)
        if found is None:
            raise session_not_found(session)
        return found

    async def commit(self, session: SessionKey, base: Session | None, change: Change) -> bool:
        """Apply a change unless another one came since `base`; return whether it was applied."""
        lists: tuple[tuple[int, list[bytes]], ...] = (
            (change.keep_turns, [_dumped(turn) for turn in change.turns]),
            (change.keep_first, _blobs(change.first, np.float16)),
            (change.keep_complete, _blobs(change.encoded, np.float16)),
        )
        arguments: list[str | int | bytes] = [
            base.version if base else "",
            # A deleted session of this name never had this version.
            str(int(base.version) + 1 if base else time_ns() // 1000),
            change.epoch,
            change.responder,
            change.fingerprint,
            self._ttl,
            "\n".join(change.answered) if change.answered else "",
            ANSWERS_KEPT,
            *_packed_rows(change),
            *(number for keep, blobs in lists for number in (keep, len(blobs))),
            *(blob for _, blobs in lists for blob in blobs),
        ]
        with redis_errors(self._metrics, "session_write") as outcome:
            applied = bool(await self._commit(keys=_keys(session), args=arguments))
            if not applied:
                outcome.result = "conflict"
        if applied and base is None:
            self._metrics.sessions_created.inc()
        return applied

    async def put_first(self, session: SessionKey, epoch: int, place: int, vector: Float32) -> bool:
        """Add [B1] (d,) of the utterance at `place`, unless it is stored or the text changed."""
        keys = [key for key in _keys(session) if key.endswith(("meta", "first"))]
        arguments: list[int | bytes] = [epoch, place, vector.astype(np.float16).tobytes()]
        with redis_errors(self._metrics, "session_fill") as outcome:
            applied = bool(await self._put_first(keys=keys, args=arguments))
            if not applied:
                outcome.result = "conflict"
        return applied

    async def delete(self, session: SessionKey) -> bool:
        """Delete a session; return whether there was one."""
        with redis_errors(self._metrics, "session_delete"):
            return bool(await self._redis.unlink(*_keys(session, _PARTS + _FORMER_PARTS)))

    def _session(self, found: _Read) -> Session | None:
        version, epoch, responder, fingerprint, _, rows, _ = found.meta
        if version is None:
            return None
        left = found.without_posts() if found.lost else found
        kept = self._kept_rows(rows, left.complete)
        if kept is None and not left.encoded:  # another release keeps another number of rows
            left = left._replace(complete=0)
            kept = self._kept_rows(None, 0)
        return Session(
            version=version.decode(),
            epoch=int(epoch) + found.lost,
            responder=responder.decode(),
            fingerprint=fingerprint.decode(),
            turns=tuple(Turn(*post) for post in from_json(b"[" + b",".join(left.posts) + b"]")),
            first=self._vectors(left.first, np.float16),
            encoded=self._vectors(left.encoded, np.float16),
            rows=kept,
            complete=left.complete,
            expires_at=time() + found.milliseconds / 1000,
        )

    def _kept_rows(self, rows: bytes | None, count: int) -> KeptRows | None:
        if not count:
            return KeptRows.none(self._dimension, paired=self._paired)
        shape = (1 + min(count, ROWS_KEPT), self._dimension)
        if len(rows or b"") != 4 * shape[0] * shape[1]:
            return None
        read = np.frombuffer(rows or b"", np.float32).reshape(shape)
        return KeptRows(count, read[0], read[1:], paired=self._paired)

    def _vectors(self, blobs: list[bytes], dtype: DTypeLike) -> Float32:
        size = self._dimension * np.dtype(dtype).itemsize
        if any(len(blob) != size for blob in blobs):  # stored by a model with another dimension
            blobs = []
        stored = np.frombuffer(b"".join(blobs), dtype)
        return stored.reshape(-1, self._dimension).astype(np.float32)


async def until_landed(session: SessionKey, attempt: Callable[[], Awaitable[T | None]]) -> T:
    """Return the result of the first attempt to change a session that lands.

    Args:
        session: The session.
        attempt: Reads, computes and commits; None where another writer committed first.

    Raises:
        StateUnavailable: Other writers were faster every time.
    """
    for _ in range(_ATTEMPTS):
        if (result := await attempt()) is not None:
            return result
    raise StateUnavailable(f"too many changes of session '{session.id}' at once; try again")


def session_not_found(session: SessionKey) -> SessionNotFound:
    """Return the error that names the session."""
    return SessionNotFound(f"there is no session '{session.id}': its first turn creates it")


def _keys(session: SessionKey, parts: Sequence[str] = _PARTS) -> list[str]:
    return [f"tw:session:{{{session.namespace}/{session.id}}}:{part}" for part in parts]


def _dumped(turn: Turn) -> bytes:
    return json.dumps(turn, ensure_ascii=False).encode()


def _packed_rows(change: Change) -> tuple[bytes, str]:
    """Return the rows, and what they are of: the epoch and the number of encoded utterances."""
    if change.rows is None:
        return b"", ""
    packed = change.rows.total.tobytes() + change.rows.newest.tobytes()
    return packed, f"{change.epoch}:{change.rows.count}"


def _blobs(vectors: Float32, dtype: DTypeLike) -> list[bytes]:
    return [vector.tobytes() for vector in vectors.astype(dtype)]
