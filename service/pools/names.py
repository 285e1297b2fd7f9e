"""`PoolNames`: the names of pools and aliases, as this replica last saw them in Redis."""

from collections.abc import Callable, Collection

from turnwise.service.pools.redis.values import PoolKey


class PoolNames:
    """Names, aliases, and the pools that this replica cannot serve.

    Attributes:
        listed: The names of all pools in Redis.
        aliases: The pool of each alias.
        obstacles: The pools that this replica cannot serve, and why.
    """

    def __init__(self) -> None:
        self.listed: Collection[PoolKey] = ()
        self.aliases: dict[PoolKey, PoolKey] = {}
        self.obstacles: dict[PoolKey, str] = {}
        self._former: dict[PoolKey, PoolKey] = {}
        """The pool that each alias stood for when it was last asked for here."""

    @property
    def asked_aliases(self) -> Collection[PoolKey]:
        """The aliases that requests have named here."""
        return self._former.keys()

    def resolve(self, name: PoolKey, has_read: Callable[[PoolKey], bool]) -> PoolKey:
        """Return the pool that a name refers to on this replica.

        An alias that was moved refers to its former pool until this replica has read the new one.
        """
        target = self.aliases.get(name)
        if target is None:
            self._former.pop(name, None)
            return name
        former = self._former.get(name, target)
        if former != target and has_read(former) and not has_read(target):
            return former
        self._former[name] = target
        return target

    def note_alias(self, name: PoolKey, key: PoolKey) -> None:
        """Note which pool a name refers to in Redis: another one if it is an alias."""
        if key == name:
            self.aliases.pop(name, None)
        else:
            self.aliases[name] = key

    def forget(self, key: PoolKey) -> None:
        """Forget a pool that was deleted or dropped from memory."""
        self.obstacles.pop(key, None)
        self._former = {alias: pool for alias, pool in self._former.items() if pool != key}
