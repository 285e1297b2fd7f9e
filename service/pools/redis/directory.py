"""The names of all pools in Redis, the aliases, and the count of changes that replicas poll.

A name belongs to a pool or to an alias, never to both. `tw:pools` (hash) has the incarnation of
each pool, `tw:aliases:{tw:pools}` (hash) the pool of each alias; they share a hash slot, so that
one script can check both. `tw:changes:{tw:born}` counts the changes of all pools, and `tw:born` is
the id of the database. `tw:in-use:{tw:born}` (sorted set) has the time at which requests last named
each pool.

A pool is in another slot of a cluster, so no script can change it and count that at once: if the
count is lost, replicas find the change when they next compare everything.
"""

import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from time import time
from typing import Literal, NamedTuple

from turnwise.models.texts import write_count
from turnwise.service.errors import Conflict, NamespaceFull, PoolNotFound, StateUnavailable
from turnwise.service.pools.redis.commands import Commands
from turnwise.service.pools.redis.values import PoolKey, not_found

_NAMES = "tw:pools"
_ALIASES = "tw:aliases:{tw:pools}"
_MISSING = "tw:missing:{tw:pools}"
_DATABASE_ID = "tw:born"
_CHANGES = "tw:changes:{tw:born}"
_IN_USE = "tw:in-use:{tw:born}"
LOCK_SECONDS = 30.0
"""Seconds after which a lock expires that nobody released."""
WRITE_SECONDS = 20.0
"""Seconds of a lock in which its holder may write. The rest is for clocks that differ."""


class Changes(NamedTuple):
    """The random id of a database, and the number of changes of its pools."""

    database_id: str
    number: int

    def are_older_than(self, seen: "Changes") -> bool:
        """Return whether Redis has lost changes since it had those that were seen."""
        return self.database_id != seen.database_id or self.number < seen.number


class Unlisted(NamedTuple):
    """A name that was removed from the lists.

    Attributes:
        incarnation: The incarnation of its pool; None if no pool was listed.
        was_missing: Whether it was one of the missing names.
    """

    incarnation: str | None
    was_missing: bool


class Directory(Commands):
    """Commands on names; each raises StateUnavailable if Redis is unavailable."""

    async def changes(self) -> Changes:
        """Return the number of changes; after a loss of all data the database has a new id."""
        while True:
            get = self._redis.mget(_DATABASE_ID, _CHANGES)
            database_id, number = await self.execute("pool_read", get)
            if database_id is not None:
                return Changes(database_id.decode(), int(number or 0))
            new = secrets.token_hex(8)
            await self.execute("pool_write", self._redis.set(_DATABASE_ID, new, nx=True))

    async def count_change(self) -> None:
        """Tell other replicas of a change, at their next poll; later if Redis is unavailable."""
        with suppress(StateUnavailable):
            await self.execute("pool_write", self._redis.incr(_CHANGES))

    @asynccontextmanager
    async def lock(self, namespace: str) -> AsyncIterator[float]:
        """Keep other replicas from adding to a namespace until the block ends.

        The block checks a limit, then writes. No script could do both, because the pools of a
        namespace are in several slots of a cluster.

        Yields the time until which the block may write, in seconds of the clock of Redis. The
        script that writes compares it: the lock of a replica that was frozen may have expired.
        """
        async with self.hold_lock(f"tw:lock:{namespace}", LOCK_SECONDS) as held:
            yield held.since + WRITE_SECONDS

    async def in_use(self) -> set[PoolKey]:
        """Return the pools that requests on any replica have named lately."""
        found = await self.execute("pool_read", self._redis.zrange(_IN_USE, 0, -1))
        return set(map(_read_key, found))

    async def note_in_use(self, pools: Iterable[PoolKey], seconds: float) -> None:
        """Note that requests name these pools; forget pools that none named for so many seconds."""
        now = time()
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.zadd(_IN_USE, dict.fromkeys(map(str, pools), now))
        pipeline.zremrangebyscore(_IN_USE, "-inf", now - seconds)
        with suppress(StateUnavailable):  # a Redis that is full still lets replicas follow it
            await self.execute("pool_write", pipeline.execute())

    async def names(self) -> dict[PoolKey, str]:
        """Return the incarnation of each listed pool; the pool itself may be gone already."""
        found = await self.execute("pool_read", self._redis.hgetall(_NAMES))
        return {_read_key(name): incarnation.decode() for name, incarnation in found.items()}

    async def aliases(self) -> dict[PoolKey, PoolKey]:
        """Return the pool of each alias."""
        found = await self.execute("pool_read", self._redis.hgetall(_ALIASES))
        return {_read_key(alias): _read_key(pool) for alias, pool in found.items()}

    async def missing(self) -> frozenset[PoolKey]:
        """Return the names that were noted as missing; some may be listed again."""
        found = await self.execute("pool_read", self._redis.smembers(_MISSING))
        return frozenset(map(_read_key, found))

    async def add_missing(self, names: Iterable[PoolKey]) -> None:
        """Note that Redis lost pools or aliases of these names."""
        await self.execute("pool_write", self._redis.sadd(_MISSING, *map(str, names)))

    async def names_and_aliases(self) -> tuple[set[PoolKey], dict[PoolKey, PoolKey]]:
        """Return the names of all pools and the pool of each alias, as they are at one moment."""
        names, pairs = await self.run_script("pool_read", "list_names", [_NAMES, _ALIASES], [])
        aliases = zip(map(_read_key, pairs[::2]), map(_read_key, pairs[1::2]), strict=True)
        return {*map(_read_key, names)}, dict(aliases)

    async def resolve(self, name: PoolKey) -> PoolKey:
        """Return the pool that a name refers to: the pool of an alias, or the name itself."""
        pool = await self.execute("pool_read", self._redis.hget(_ALIASES, str(name)))
        return name if pool is None else _read_key(pool)

    async def add(self, key: PoolKey, incarnation: str, *, most: int | None = None) -> None:
        """List a pool.

        Args:
            key: The pool.
            incarnation: Its incarnation.
            most: Greatest number of pools of the namespace; None for no limit.

        Raises:
            Conflict: An alias has its name.
            NamespaceFull: The pool would be new, and the namespace has as many as it may have.
        """
        arguments = [str(key), incarnation, f"{key.namespace}/", most or ""]
        outcome, *found = await self.run_script(
            "pool_write", "enlist", [_NAMES, _ALIASES], arguments
        )
        if outcome == b"alias":
            raise Conflict(f"'{key.name}' is the name of an alias; choose another name")
        if outcome == b"full":
            raise self._reject(key.namespace, found[0], "pool", most)

    async def check_number(self, key: PoolKey, most: int) -> None:
        """Reject a new pool if its namespace has as many as it may have, before it is made."""
        names = await self.names()
        has = sum(other.namespace == key.namespace for other in names)
        if key not in names and has >= most:
            raise self._reject(key.namespace, has, "pool", most)

    async def unlist(self, key: PoolKey) -> Unlisted:
        """Remove a pool that is about to be deleted from the list, and from the missing names.

        No alias can point at it any more.

        Raises:
            Conflict: The name is an alias, or an alias points at the pool.
        """
        outcome, *found = await self.run_script(
            "pool_write", "unlist", [_NAMES, _ALIASES, _MISSING], [str(key)]
        )
        if outcome == b"is_alias":
            to = _read_key(found[0]).name
            raise Conflict(f"'{key.name}' is an alias of pool '{to}'; delete the alias")
        if outcome == b"has_alias":
            alias = _read_key(found[0]).name
            raise Conflict(f"alias '{alias}' points at pool '{key.name}'; move it first")
        incarnation, was_missing = found
        return Unlisted(incarnation.decode() or None, bool(was_missing))

    async def remove(self, key: PoolKey, incarnation: str) -> None:
        """Remove a deleted pool from the list."""
        await self.run_script("pool_write", "forget", [_NAMES], [str(key), incarnation])

    async def point(
        self, alias: PoolKey, to: PoolKey, expected: PoolKey | None, *, most: int | None = None
    ) -> None:
        """Create an alias, or point it at another pool.

        Args:
            alias: The name of the alias.
            to: The pool.
            expected: The pool that the alias should point at now; None for any or none.
            most: Greatest number of aliases of the namespace; None for no limit.

        Raises:
            Conflict: A pool has the name of the alias, or it does not point at the expected pool.
            NamespaceFull: The alias would be new, and the namespace has as many as it may have.
            PoolNotFound: There is no such pool.
        """
        arguments = [str(alias), str(to), str(expected or ""), f"{alias.namespace}/", most or ""]
        outcome, *found = await self.run_script(
            "pool_write", "point", [_NAMES, _ALIASES], arguments
        )
        if outcome == b"is_pool":
            raise Conflict(f"'{alias.name}' is a pool: choose another name for the alias")
        if outcome == b"no_pool":
            raise not_found(to)
        if outcome == b"conflict" and expected:
            raise Conflict(f"alias '{alias.name}' does not point at pool '{expected.name}'")
        if outcome == b"full":
            raise self._reject(alias.namespace, found[0], "alias", most)

    async def unpoint(self, alias: PoolKey) -> None:
        """Delete an alias, and not its pool; an alias that Redis lost is no longer missing.

        Raises:
            PoolNotFound: There is no such alias.
        """
        keys = [_NAMES, _ALIASES, _MISSING]
        if not await self.run_script("pool_write", "unpoint", keys, [str(alias)]):
            raise PoolNotFound(f"there is no alias {alias.describe()}")

    def _reject(
        self, namespace: str, has: int, kind: Literal["pool", "alias"], most: int | None
    ) -> NamespaceFull:
        """Count a rejected name; return the error."""
        plural = "pools" if kind == "pool" else "aliases"
        self._metrics.rejected_requests.labels(plural).inc()
        count = write_count(has, kind, plural)
        return NamespaceFull(f"namespace '{namespace}' has {count}, and may have {most}")


def _read_key(stored: bytes) -> PoolKey:
    return PoolKey(*stored.decode().split("/", 1))
