"""`PoolNames`: the names of pools and aliases, as this replica last saw them in Redis."""

from collections.abc import Callable, Collection, Mapping

from turnwise.service.pools.redis.values import PoolKey


class PoolNames:
    """Names, aliases, and the pools that this replica cannot serve.

    Attributes:
        listed: The names of all pools in Redis.
        obstacles: The pools that this replica cannot serve, and why.
    """

    def __init__(self) -> None:
        self.listed: Collection[PoolKey] = ()
        self.obstacles: dict[PoolKey, str] = {}
        self._pool_of: dict[PoolKey, PoolKey] = {}
        """The pool of each alias."""
        self._aliases_of: dict[PoolKey, set[str]] = {}
        """The names of the aliases of each pool that has any."""
        self._former: dict[PoolKey, PoolKey] = {}
        """The pool that each alias referred to when a request last named it here."""

    @property
    def aliases(self) -> dict[PoolKey, PoolKey]:
        """A copy of the aliases, each with its pool."""
        return dict(self._pool_of)

    @property
    def asked_aliases(self) -> Collection[PoolKey]:
        """The aliases that requests have named here."""
        return self._former.keys()

    def aliases_of(self, pool: PoolKey) -> list[str]:
        """Return the names of the aliases of a pool, sorted."""
        return sorted(self._aliases_of.get(pool, ()))

    def resolve(self, name: PoolKey, has_read: Callable[[PoolKey], bool]) -> PoolKey:
        """Return the pool that a name refers to on this replica.

        An alias that was moved refers to its former pool until this replica has read the new one.
        """
        target = self._pool_of.get(name)
        if target is None:
            self._former.pop(name, None)
            return name
        former = self._former.get(name, target)
        if former != target and has_read(former) and not has_read(target):
            return former
        self._former[name] = target
        return target

    def update_aliases(
        self, aliases: Mapping[PoolKey, PoolKey], known: Mapping[PoolKey, PoolKey]
    ) -> None:
        """Note all aliases in Redis, except those that a request has changed meanwhile.

        Args:
            aliases: The pool of each alias in Redis.
            known: `aliases` of this object before Redis was asked.
        """
        for name in self._pool_of.keys() | aliases.keys():
            if self._pool_of.get(name) == known.get(name):
                self.note_alias(name, aliases.get(name, name))

    def note_alias(self, name: PoolKey, key: PoolKey) -> None:
        """Note which pool a name refers to in Redis; a name that refers to itself is no alias."""
        before = self._pool_of.pop(name, None)
        if before:
            self._aliases_of[before].discard(name.name)
        if key != name:
            self._pool_of[name] = key
            self._aliases_of.setdefault(key, set()).add(name.name)

    def forget(self, key: PoolKey) -> None:
        """Forget a pool that was deleted or dropped from memory."""
        self.obstacles.pop(key, None)
        self._former = {alias: pool for alias, pool in self._former.items() if pool != key}
