"""Reads and writes sessions in Redis: their texts, and the vectors of at most two models.

A session is six keys with one hash tag:

- the hash `meta`: version, epoch, responder, filter, slots, fingerprint, number of posts, kept
  rows, and the offers and choices of the newest turns;
- the hash `feedback`;
- the list `posts`: its turns as JSON;
- the lists `first` and `second`: [B1] and [B2] of each utterance, in float16. For a model with
  heads `first` is empty, and `second` has each utterance as the model reads it;
- the list `answers`, to idempotency keys.

The vectors are those of one model, in the order of the utterances. The lists of vectors may end
early: missing vectors are computed from the text again, and missing rows from the vectors. The
epoch changes when an utterance with vectors changes. So neither a late [B1] nor kept rows ever
belong to another text.

While replicas with two models share a session, as during a change of the model, the second model
has lists of its own, `other_first` and `other_second`, and the fields `other_*` of `meta`. If a
third model comes, the vectors of the least recently used one are dropped. The lists of a model
expire when no replica has used them for the lifetime of a session. Earlier releases do not know the
second lists and change only the epoch, so these are valid only as of `other_epoch`.

In the hash tag, an id is percent-encoded, so that no id ends the tag early or holds a wildcard of
SCAN. Ids of letters, digits and `._~-`, which are all that version 0.1 knows, stay as they are.

Where the number of sessions is limited, a sorted set for each namespace has the ids of the live
ones, by the second at which each expires.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import NamedTuple
from urllib.parse import quote, unquote

import numpy as np
from pydantic_core import from_json, to_json
from redis.asyncio import Redis

from turnwise.models.arrays import Float32
from turnwise.models.scores import ROWS_KEPT, KeptRows
from turnwise.models.texts import write_count
from turnwise.service.errors import InvalidRequest, NamespaceFull, SessionNotFound
from turnwise.service.observe.metrics import Metrics
from turnwise.service.redis.connection import load_scripts, read_clock, redis_errors
from turnwise.service.redis.scan import scan_page
from turnwise.service.sessions.turns import Turn
from turnwise.service.wire.filters import Where

_log = logging.getLogger("turnwise.sessions")

ANSWERS_KEPT = 8
"""Most answers to idempotency keys that a session keeps."""
ANSWER_BYTES_KEPT = 1 << 18
"""Most bytes of these answers. The newest one is kept even if it alone is larger."""
OFFERS_KEPT = 16
"""Newest turns of a session that can get feedback."""
FEEDBACK = "feedback"
"""The part of a session that `feedback.py` keeps."""

_KEY = "tw:session:{"
_OTHER = "other_"
_FORMER = "rows"
"""A list that version 0.1 keeps in addition to `second`."""


class SessionKey(NamedTuple):
    """Identifies a session; other namespaces cannot reach it."""

    namespace: str
    id: str

    def keys(self, *parts: str) -> list[str]:
        """Return the keys of some parts in Redis."""
        encoded = _encode_id(self.id)
        return [f"{_KEY}{self.namespace}/{encoded}}}:{part}" for part in parts]


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it was read.

    Attributes:
        version: Changes with every mutation.
        epoch: Changes when an utterance that had vectors changes.
        responder: The speaker who says the candidates.
        where: The filter of its turns; None matches all candidates.
        slots: The values for the slots of candidates, by their names.
        prefix: The prefix of the keys and fields of this model's vectors: "", or "other_" where
            another model has those without a prefix.
        fingerprint: The fingerprint of this model if the session has its vectors, else of another.
        turns: All of them.
        first: (m, d) [B1] of the first m utterances.
        encoded: (k, d) [B2] of the first k utterances; (0, d) where it was neither requested nor
            needed for the rows.
        rows: The rows of the first k utterances; None where they must be computed from the vectors.
        complete: k, the number of utterances that were encoded.
        lost: Whether Redis lost the turns.
        expires_at: Unix seconds.
        choice: The id of the choice of the last turn; see `feedback.py`.
    """

    version: str
    epoch: int
    responder: str
    where: Where | None
    slots: Mapping[str, str]
    prefix: str
    fingerprint: str
    turns: tuple[Turn, ...]
    first: Float32
    encoded: Float32
    rows: KeptRows | None
    complete: int
    lost: bool
    expires_at: float
    choice: str | None = None


class _Meta(NamedTuple):
    """The fields of the hash `meta` that `read_session.lua` returns; None for a missing one."""

    version: bytes | None
    epoch: bytes
    responder: bytes
    posts: bytes | None
    """The number of posts."""
    fingerprint: bytes
    where: bytes | None
    other_fingerprint: bytes | None
    other_epoch: bytes | None
    slots: bytes | None
    choice: bytes | None
    """The choice of the last turn."""


class _Read(NamedTuple):
    """The reply of `read_session.lua`. If this model has no vectors, the reply ends before them."""

    meta: _Meta
    prefix: bytes
    milliseconds: int
    """Time to live."""
    answer: bytes | None
    posts: list[bytes]
    first: Sequence[bytes] = ()
    encoded: Sequence[bytes] = ()
    complete: int = 0
    """Length of the list in Redis, requested or not."""
    rows: bytes | None = None

    @property
    def lost(self) -> bool:
        """Whether Redis lost posts, or the hash `meta`."""
        return int(self.meta.posts or 0) != len(self.posts)

    def without_posts(self) -> "_Read":
        """Return the reply without posts and their vectors."""
        return _Read(self.meta, self.prefix, self.milliseconds, self.answer, [])


class Offer(NamedTuple):
    """The candidates that a turn offered."""

    pool: str
    model: str
    ids: Sequence[str]
    """The ids of the candidates, best first."""


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
        epoch: The session's epoch after the change.
        responder: The speaker who says the candidates.
        keep_turns: Number of turns kept, from the oldest.
        turns: Turns appended.
        keep_first: Number of [B1] kept.
        first: (., d) [B1] appended.
        keep_encoded: Number of vectors kept of those that the encoder returned.
        encoded: (k, d) such vectors appended.
        rows: The rows of all utterances after; None leaves them to the next reader.
        unchanged: Number of leading utterances that did not change; None if none changed.
        answered: The answer to keep for its idempotency key.
        where: The filter as JSON; None leaves it as it is.
        slots: The values for slots as JSON; None leaves them as they are.
        offer: The candidates that the last of the appended turns offered; None without any.
    """

    epoch: int
    responder: str
    keep_turns: int
    turns: Sequence[Turn]
    keep_first: int
    first: Float32
    keep_encoded: int
    encoded: Float32
    rows: KeptRows | None
    unchanged: int | None = None
    answered: Answered | None = None
    where: str | None = None
    slots: str | None = None
    offer: Offer | None = None


class SessionStore:
    """Reads and changes sessions, each with one script; raises StateUnavailable without Redis."""

    def __init__(
        self,
        redis: Redis,
        metrics: Metrics,
        *,
        fingerprint: str,
        dimension: int,
        ttl: int,
        paired: bool,
        max_sessions: int | None = None,
    ) -> None:
        """Register the scripts.

        Args:
            redis: Connection to the sessions.
            metrics: Counts the operations.
            fingerprint: The fingerprint of the model whose vectors it reads and writes.
            dimension: d, of the model's vectors.
            ttl: Seconds that a session lives after its last change.
            paired: Whether the model's rows are sums over pairs.
            max_sessions: Most sessions of a namespace.
        """
        self._redis = redis
        self._metrics = metrics
        self._ttl = ttl
        self._max_sessions = max_sessions
        self._fingerprint = fingerprint
        self._dimension = dimension
        self._paired = paired
        self._script = load_scripts("turnwise.service.sessions", redis)

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
        wanted: list[str | int] = [
            self._fingerprint,
            self._dimension * np.dtype(np.float32).itemsize,
            ROWS_KEPT,
            int(encoded),
            idempotency_key,
            *session.keys(*_list_names(_OTHER)),
        ]
        with redis_errors(self._metrics, "session_read") as outcome:
            meta, *others = await self._script["read_session"](
                keys=session.keys(*_key_parts()), args=wanted
            )
            found = _Read(_Meta(*meta), *others)
            if found.answer:
                outcome.result = "replayed"
        answered = Answered(*found.answer.decode().split("\n", 2)) if found.answer else None
        if found.lost:
            self._metrics.redis_losses.labels("session").inc()
            _log.warning("Redis lost a part of a session")
        return self._make_session(found), answered

    async def find(self, session: SessionKey, *, encoded: bool = False) -> Session:
        """Read a session that must exist; arguments as in `read`.

        Raises:
            SessionNotFound: There is no such session.
        """
        existing, _ = await self.read(session, encoded=encoded)
        if existing is None:
            raise session_not_found(session)
        return existing

    async def commit(self, session: SessionKey, base: Session | None, change: Change) -> int | None:
        """Apply a change unless another one came since `base`.

        Returns:
            The version after; None where the change was not applied. Versions grow with every
            change, and a new session gets larger ones than a deleted session of the same name.

        Raises:
            NamespaceFull: The session would be new, and the namespace has as many as it may.
        """
        if self._max_sessions is not None:
            await self._admit(session, base, self._max_sessions)
        prefix = base.prefix if base else ""
        keys = session.keys(*_key_parts(prefix), FEEDBACK)
        if change.unchanged is not None:
            keys += session.keys(*_list_names("" if prefix else _OTHER), _FORMER)
        arguments = self._commit_arguments(base, change)
        with redis_errors(self._metrics, "session_write") as outcome:
            committed = int(await self._script["commit_session"](keys=keys, args=arguments))
            if not committed:
                outcome.result = "conflict"
                return None
        if base is None:
            self._metrics.sessions_created.inc()
        return committed

    def _commit_arguments(self, base: Session | None, change: Change) -> list[str | int | bytes]:
        """Return the arguments of `commit_session.lua`."""
        lists: tuple[tuple[int, list[bytes]], ...] = (
            (change.keep_turns, [turn.to_json() for turn in change.turns]),
            (change.keep_first, _pack_vectors(change.first)),
            (change.keep_encoded, _pack_vectors(change.encoded)),
        )
        offer = change.offer
        return [
            base.version if base else "",
            int(base.version) + 1 if base else "",
            change.epoch,
            change.responder,
            self._fingerprint,
            self._ttl,
            "\n".join(change.answered) if change.answered else "",
            ANSWERS_KEPT,
            ANSWER_BYTES_KEPT,
            base.prefix if base else "",
            *_pack_rows(change),
            change.unchanged or 0,
            *(number for keep, blobs in lists for number in (keep, len(blobs))),
            change.where or "",
            to_json([offer.pool, offer.model, *offer.ids]) if offer else "",
            OFFERS_KEPT,
            change.slots or "",
            *(blob for _, blobs in lists for blob in blobs),
        ]

    async def put_b1(
        self, session: SessionKey, base: Session | None, epoch: int, index: int, vector: Float32
    ) -> bool:
        """Add [B1] (d,) of the utterance at `index`, unless it is stored or the text changed.

        Args:
            session: The session.
            base: As in the commit that added the utterance.
            epoch: The epoch of that commit.
            index: Number of utterances before this one.
            vector: [B1].
        """
        prefix = base.prefix if base else ""
        keys = session.keys("meta", _list_names(prefix)[0])
        blob = vector.astype(np.float16).tobytes()
        arguments: list[str | int | bytes] = [prefix, self._fingerprint, epoch, index, blob]
        with redis_errors(self._metrics, "session_fill") as outcome:
            applied = bool(await self._script["put_b1"](keys=keys, args=arguments))
            if not applied:
                outcome.result = "conflict"
        return applied

    async def delete(self, session: SessionKey) -> int | None:
        """Delete a session; return its last version, 0 if that is lost, None if there was none."""
        with redis_errors(self._metrics, "session_delete"):
            keys = session.keys(*_key_parts(), FEEDBACK, *_list_names(_OTHER), _FORMER)
            if self._max_sessions is not None:  # first: the session may begin again at once
                await self._redis.zrem(_live_key(session.namespace), session.id)
            version: bytes | None = await self._script["delete_session"](keys=keys)
            return None if version is None else int(version)

    async def current_version(self) -> int:
        """Return a version after those of all sessions so far, and before all later ones."""
        with redis_errors(self._metrics, "session_read"):
            return await read_clock(self._redis)

    async def page(
        self, namespace: str, prefix: str, cursor: str | None, *, part: str = "meta"
    ) -> tuple[list[str], str | None]:
        """Return ids of sessions, a page at a time.

        Args:
            namespace: The namespace of the sessions.
            prefix: The beginning of their ids.
            cursor: As the page before returned it.
            part: The part that a session must have to be found; "*" is any.

        Returns:
            The ids, in no order, and the cursor of the next page; None after the last one.

        Raises:
            InvalidRequest: The cursor is not one of the service, or has become invalid.
        """
        start = f"{_KEY}{namespace}/"
        with redis_errors(self._metrics, "session_list"):
            pattern = f"{start}{_encode_id(prefix)}*}}:{part}"
            page = await scan_page(self._redis, pattern, cursor)
        if page is None:
            raise InvalidRequest.field("is not valid any more: begin again without it", "cursor")
        ids = (unquote(key.removeprefix(start).partition("}")[0]) for key in page.keys)
        return list(dict.fromkeys(ids)), page.cursor

    async def _admit(self, session: SessionKey, base: Session | None, most: int) -> None:
        """Note that a session lives; reject a new one if its namespace has `most` already."""
        arguments: list[str | int] = [session.id, self._ttl, "" if base else most]
        with redis_errors(self._metrics, "session_write"):
            keys = [_live_key(session.namespace)]
            admitted = await self._script["admit_session"](keys=keys, args=arguments)
        if not admitted:
            self._metrics.rejected_requests.labels("sessions").inc()
            raise NamespaceFull(
                f"namespace '{session.namespace}' has {write_count(most, 'session')}, which is the "
                "limit: delete some, or wait until some expire"
            )

    def _make_session(self, found: _Read) -> Session | None:
        meta = found.meta
        if meta.version is None:
            return None
        kept = found.without_posts() if found.lost else found
        return Session(
            version=meta.version.decode(),
            epoch=int(meta.epoch),
            responder=meta.responder.decode(),
            where=from_json(meta.where) if meta.where else None,
            slots=from_json(meta.slots) if meta.slots else {},
            prefix=kept.prefix.decode(),
            fingerprint=self._fingerprint if kept.complete else meta.fingerprint.decode(),
            turns=tuple(Turn(*post) for post in from_json(b"[" + b",".join(kept.posts) + b"]")),
            first=self._unpack_vectors(kept.first),
            encoded=self._unpack_vectors(kept.encoded),
            rows=self._unpack_rows(kept.rows, kept.complete),
            complete=kept.complete,
            lost=found.lost,
            expires_at=time() + found.milliseconds / 1000,
            choice=meta.choice.decode() if meta.choice and not found.lost else None,
        )

    def _unpack_rows(self, rows: bytes | None, count: int) -> KeptRows | None:
        if not count:
            return KeptRows.none(self._dimension, paired=self._paired)
        if rows is None:
            return None
        read = np.frombuffer(rows, np.float32).reshape(-1, self._dimension)
        return KeptRows(count, read[0], read[1:], paired=self._paired)

    def _unpack_vectors(self, blobs: Sequence[bytes]) -> Float32:
        stored = np.frombuffer(b"".join(blobs), np.float16)
        return stored.reshape(-1, self._dimension).astype(np.float32)


def session_not_found(session: SessionKey) -> SessionNotFound:
    """Return the error that names the session."""
    return SessionNotFound(f"there is no session '{session.id}': its first turn creates it")


def _encode_id(session_id: str) -> str:
    """Return an id, or the beginning of one, as the keys of sessions have it."""
    return quote(session_id, safe="")


def _key_parts(prefix: str = "") -> tuple[str, ...]:
    return ("meta", "posts", *_list_names(prefix), "answers")


def _list_names(prefix: str) -> tuple[str, str]:
    return f"{prefix}first", f"{prefix}second"


def _live_key(namespace: str) -> str:
    return f"tw:sessions:{namespace}"


def _pack_rows(change: Change) -> tuple[bytes, str]:
    """Return the rows as bytes, and as text the epoch and the number of their utterances."""
    if change.rows is None:
        return b"", ""
    packed = change.rows.total.tobytes() + change.rows.newest.tobytes()
    return packed, f"{change.epoch}:{change.rows.count}"


def _pack_vectors(vectors: Float32) -> list[bytes]:
    return [vector.tobytes() for vector in vectors.astype(np.float16)]
