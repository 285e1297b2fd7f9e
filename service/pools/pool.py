"""`Pool`: one pool on this replica, the base class of `LocalPool` and `RemotePool`."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import NamedTuple, get_args

from turnwise.service.errors import NotEnoughMemory, PoolNotFound, StateUnavailable
from turnwise.service.observe.metrics import TurnOutcome
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.encoding import EncodingProgress, PoolEncoder
from turnwise.service.pools.memory.workers import Work
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import PoolKey, Revision
from turnwise.service.pools.resources import PoolResources
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.pools.view import CandidateBatch, PoolView
from turnwise.service.wire.pools import Edited, PoolInfo, PoolState, Removed

Revise = Callable[[Candidate], Candidate]
"""Returns the candidate that replaces a given one, with the same id."""
MakeBatches = Callable[[], AsyncIterable[CandidateBatch]]
"""Returns the candidates of a pool in batches; called again if others edit the pool meanwhile."""

RETRY_SECONDS = 30.0
"""Delay before a version that could not be read is tried again, which may read the whole pool."""


class Backend(NamedTuple):
    """An encoder that pools can have, and the records of its pools."""

    encoder: PoolEncoder
    records: PoolRecords


class Pool(ABC):
    """A pool that this replica follows; every method that needs Redis raises StateUnavailable."""

    def __init__(
        self, key: PoolKey, backend: Backend, newest: Revision, resources: PoolResources
    ) -> None:
        """Follow a pool, without reading it yet.

        Args:
            key: The namespace and the name of the pool.
            backend: The encoder of its candidates, and the records of its pools.
            newest: The revision in Redis, as it was last seen there.
            resources: What it shares with the other pools of this replica.
        """
        self.key = key
        self.newest = newest
        self.encoder = backend.encoder
        self.records = backend.records
        self.encoder_name = newest.encoder_name
        self._resources = resources
        self._workers = resources.workers
        self._metrics = resources.metrics
        self._lock = asyncio.Lock()
        self.state: PoolState = "loading"
        self.asked_at = monotonic()
        """When a request last named it."""
        self.forgotten = False
        """Whether this replica has dropped it and removed its metrics."""
        self._unreadable: tuple[Revision, float] | None = None
        """The version that could not be read, and the time of the attempt."""
        self._is_short = False
        """Whether memory was too short for that version."""

    @property
    def is_busy(self) -> bool:
        """Whether it is being read or edited now."""
        return self._lock.locked()

    @property
    def is_awaited(self) -> bool:
        """Whether it is still being read or encoded; a replica that starts waits for that."""
        return self.state in {"loading", "encoding"}

    @property
    def is_refused(self) -> bool:
        """Whether its newest version did not fit into memory when it was last read."""
        return self._unreadable is not None and self._is_short

    @property
    def is_behind(self) -> bool:
        """Whether it serves an older version because the newest cannot be read."""
        failed = self._unreadable
        return self.state == "ready" and failed is not None and failed[0] != self.revision

    @property
    @abstractmethod
    def revision(self) -> Revision | None:
        """The revision of the version that is here; None before the first read."""

    @property
    @abstractmethod
    def candidate_bytes(self) -> int:
        """Bytes of the candidates that are in memory: ids, texts, metadata and vectors."""

    @abstractmethod
    def view(self) -> PoolView:
        """Return the version that is here now.

        Raises:
            PoolNotReady: The pool has not been read yet.
        """

    @abstractmethod
    def info(self) -> PoolInfo:
        """Return the description of the pool as clients get it."""

    async def refresh(self) -> None:
        """Read what is new in Redis.

        Raises:
            PoolNotFound: The pool does not exist.
            PoolNotReady: Redis lost a part of it, or another replica must encode it.
            ServiceError: Redis or the encoder failed.
        """
        async with self._lock:
            await self._catch_up()

    async def follow(self) -> bool:
        """Refresh if Redis has a newer revision; return False if reading that one failed lately.

        Raises:
            ServiceError: As `refresh`.
        """
        newest = self.newest
        if self.revision == newest:
            return True
        unreadable, since = self._unreadable or (None, 0.0)
        if unreadable == newest and monotonic() - since < RETRY_SECONDS:
            return False
        try:
            await self.refresh()
        except (PoolNotFound, StateUnavailable):  # reading cost nothing: no delay
            raise
        except Exception as error:
            self._unreadable = newest, monotonic()
            self._is_short = isinstance(error, NotEnoughMemory)
            raise
        return True

    @abstractmethod
    def due_upkeep(self) -> Iterator[tuple[str, Work]]:
        """Yield the name and the function of each background task that the pool needs now."""

    @abstractmethod
    async def move_to(self, engine: CandidateStore) -> None:
        """Move the pool into a candidate store, unless it is in one already.

        Raises:
            StoreUnavailable: The engine does not answer.
            PoolMoved: Another replica moved the pool first.
        """

    @abstractmethod
    async def upsert(
        self, candidates: Sequence[Candidate], progress: EncodingProgress | None = None
    ) -> Edited:
        """Add candidates, or replace those with the same ids, which keep what they have learned.

        Args:
            candidates: With distinct ids.
            progress: Called with (texts encoded, texts to encode).

        Raises:
            PoolFull: The pool would exceed its limit.
            NamespaceFull: The pools of the namespace would exceed theirs.
            NotEnoughMemory: The candidates would not fit into memory.
            PoolNotFound: The pool does not exist.
            PoolNotReady: The pool has not been read yet.
            ServiceError: Redis, the candidate store or the encoder failed.
        """

    @abstractmethod
    async def revise(self, revise: Revise, ids: Sequence[str] | None = None) -> Edited:
        """Replace candidates by what a function makes of them, in one version; raises as `upsert`.

        Args:
            revise: Returns the candidate that replaces a given one; an equal one changes nothing.
            ids: The candidates; ids that the pool lacks are ignored. None for all candidates.
        """

    @abstractmethod
    async def remove(self, ids: Iterable[str]) -> Removed:
        """Remove candidates, and count the ids that the pool does not have; raises as `upsert`."""

    @abstractmethod
    async def replace(self, batches: MakeBatches) -> Edited:
        """Replace all candidates of the pool in one version; raises as `upsert`.

        The pool need not have been read.

        Args:
            batches: Returns candidates with distinct ids, and their vectors by this pool's encoder.
        """

    async def _catch_up(self) -> None:
        """Read what is new in Redis; the caller holds the lock."""
        await self._read_new()
        self._unreadable = None

    @abstractmethod
    async def _read_new(self) -> None:
        """Read what is new in Redis, for `_catch_up`."""

    def _report_size(self, size: int, version: int) -> None:
        """Set the metrics of the pool, unless they were removed."""
        if self.forgotten:
            return
        self._metrics.pool_candidates.labels(*self.key).set(size)
        self._metrics.pool_version.labels(*self.key).set(version)
        for outcome in get_args(TurnOutcome):
            self._metrics.turns.labels(*self.key, outcome)
