"""How a pool reaches every replica: each keeps its pools in memory as they are in Redis.

The replica that edits a pool appends the edit to the pool's log in Redis (`local`) and increments
the count of changes (`directory`). The others see the count within `POLL_SECONDS`, compare the
revisions of their pools with those in Redis, and read what is new (`replay`).
"""

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from time import monotonic

from turnwise.models.texts import write_count
from turnwise.service.errors import NotEnoughMemory, StateUnavailable, Unavailable
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.followed import FollowedPools
from turnwise.service.pools.memory.workers import Background, Work, log_errors
from turnwise.service.pools.readiness import RequiredPool
from turnwise.service.pools.redis.directory import Changes
from turnwise.service.pools.redis.values import PoolKey, Revision

POLL_SECONDS = 0.5
FULL_POLL_SECONDS = 60.0
"""Seconds after which everything is compared, even if no change was counted."""
IDLE_SECONDS = 6 * 3600.0
"""Seconds without a request after which a pool's memory is freed, and its note in Redis removed."""
NOTE_SECONDS = 60.0
"""Seconds after which a replica notes in Redis which pools requests have named."""

_log = logging.getLogger("turnwise.pools")


class PoolFollower:
    """Polls Redis, and lets the pools of this replica follow what has changed there.

    While Redis is unavailable, searches go on in memory. Pools that nobody asks for are dropped.
    """

    def __init__(
        self, pools: FollowedPools, metrics: Metrics, *, fill_seconds: float = 10.0
    ) -> None:
        """Follow nothing yet.

        Args:
            pools: The pools of this replica.
            metrics: Counts the losses of data in Redis.
            fill_seconds: Time after which a pool that could not be filled is filled again.
        """
        self._pools = pools
        self._metrics = metrics
        self._directory = pools.directory
        self._names = pools.names
        self._awaited = pools.awaited
        self._required = RequiredPool(fill_seconds)
        self._tasks = Background()
        self._first: Collection[PoolKey] = ()
        self._changes: Changes | None = None
        self._next_full_poll = 0.0
        self._noted_at = 0.0

    async def start(self, first: Collection[PoolKey] = ()) -> None:
        """Begin to read the first pools, and those that requests have lately named anywhere.

        If Redis is unavailable, do so later. `ready` waits for these pools.

        Args:
            first: Names of pools that are read in any case.
        """
        self._first = first
        await log_errors(self.poll)
        self._tasks.begin("poll", self._poll_forever)

    async def keep_filled(self, fill: Work) -> None:
        """Fill a pool that must exist: call `fill` now, and again whenever Redis lost its data."""
        self._required.require(fill)
        try:
            await self._required.fill()
        except (Unavailable, NotEnoughMemory) as error:  # a poll calls it again
            _log.warning("pools: %s", error)

    async def close(self) -> None:
        """Stop following the pools, and note which were in use."""
        await self._tasks.close()
        if self._awaited.are_known:
            await self._note_in_use()

    @property
    def ready(self) -> bool:
        """Whether the required pool is there, and those in use at the start are read or given up.

        A replica that is ready stays so, unless Redis loses its data.
        """
        return self._required.is_there and self._awaited.are_ready

    async def _poll_forever(self) -> None:
        error = ""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            error = await log_errors(self.poll, known=error)

    async def poll(self) -> None:
        """Look for changes in Redis, and begin the work on each pool in the background."""
        self._awaited.update(self._pools.in_memory)
        changes = await self._directory.changes()
        self._check_database(changes.database_id)
        if changes != self._changes or monotonic() > self._next_full_poll:
            await self._compare(changes)
            self._drop_idle()
            self._changes = changes
            self._next_full_poll = monotonic() + FULL_POLL_SECONDS
        if monotonic() > self._noted_at + NOTE_SECONDS:
            await self._note_in_use()
        for pool in list(self._pools.in_memory.values()):
            if pool.is_busy:
                continue
            if pool.revision == pool.newest:
                self._pools.begin_upkeep(pool)
            else:
                self._pools.begin_read(pool)
        self._awaited.update(self._pools.in_memory)

    async def _compare(self, changes: Changes) -> None:
        """Update the pools and names of this replica from Redis.

        Requests go on during each await: they open and forget pools, and note aliases. Their
        changes are newer than the answers of Redis, so they stay.
        """
        known = dict(self._pools.in_memory)
        known_keys = known.keys() | self._names.obstacles.keys()
        known_aliases = self._names.aliases
        names = await self._directory.names()
        aliases = await self._directory.aliases()
        asked = {*self._names.asked_aliases}
        if not self._awaited.are_known:
            asked |= {*self._first, *await self._directory.in_use()}
        successors = self._awaited.find_successors(known_aliases, aliases)
        wanted = known_keys | {aliases.get(name, name) for name in asked} | successors
        listed = sorted(wanted & names.keys())
        revisions = dict(zip(listed, await self._pools.records.revisions(listed), strict=True))
        for key in listed:
            if revisions[key] is None:
                await self._directory.remove(key, names[key])
        # No request changes anything from here to the next await.
        self._names.listed = names.keys()
        self._names.update_aliases(aliases, known_aliases)
        for key in sorted(known_keys.union(listed)):
            if self._pools.in_memory.get(key) is known.get(key):
                self._update_pool(key, revisions.get(key))
        self._awaited.add(successors)
        with suppress(StateUnavailable):  # a Redis that is full still lets replicas follow it
            await self._pools.missing.update(changes, frozenset(names.keys() | aliases.keys()))
        # Last: before `missing` is known, an error would not say that Redis lost a pool.
        if not self._awaited.are_known:
            self._awaited.begin(self._pools.in_memory)
            self._noted_at = monotonic()  # no request has named these pools here

    def _update_pool(self, key: PoolKey, revision: Revision | None) -> None:
        """Let a pool follow its revision in Redis; forget a pool that has none."""
        if revision:
            self._pools.open(key, revision)
        else:
            self._pools.resources.files.remove(key)
            self._pools.forget(key)

    def _drop_idle(self) -> None:
        """Drop the pools from memory that no request has named for long."""
        for key, pool in list(self._pools.in_memory.items()):
            if monotonic() - pool.asked_at > IDLE_SECONDS and not pool.is_busy:
                self._pools.forget(key)

    async def _note_in_use(self) -> None:
        """Note in Redis which pools requests have named here since the last note."""
        since = self._noted_at
        self._noted_at = monotonic()
        named = [key for key, pool in self._pools.in_memory.items() if pool.asked_at > since]
        if named:
            await self._directory.note_in_use(named, IDLE_SECONDS)

    def _check_database(self, database_id: str) -> None:
        """Note a loss of all data in Redis, and fill the required pool if it is due."""
        if self._changes and self._changes.database_id != database_id:
            self._metrics.redis_losses.labels("database").inc()
            lost = write_count(len(self._names.listed), "pool")
            _log.error("Redis lost its data: %s, and all sessions", lost)
            self._required.note_loss()
            self._changes = None  # compare everything, even if the number is the same
        if self._required.is_due:
            self._tasks.begin("fill", self._required.fill)
