"""`MissingPools`: pools and aliases that Redis lost, until they are back or somebody deletes them.

The list is in Redis, so that all replicas have the same one. If Redis loses all data, it loses the
list as well. So each replica remembers the names, in memory and in a file, and writes the list
again. If no replica and no file is left, the names are lost.
"""

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from turnwise.models.files import replace_file
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.redis.directory import Changes, Directory
from turnwise.service.pools.redis.values import PoolKey

_SHOWN = 10

_log = logging.getLogger("turnwise.pools")


class _Seen(BaseModel):
    """The names that this replica last saw in Redis, and those that were missing then."""

    model_config = ConfigDict(frozen=True)

    changes: Changes
    names: frozenset[PoolKey]

    def has_other_names(self, later: "_Seen") -> bool:
        """Return whether the names, or the database that has them, have changed since."""
        here = (self.changes.database_id, self.names)
        return here != (later.changes.database_id, later.names)


class MissingPools:
    """The names of pools and aliases that Redis lost.

    Attributes:
        names: The missing names.
    """

    def __init__(self, directory: Directory, metrics: Metrics, file: Path | None) -> None:
        """Know nothing yet.

        Args:
            directory: The names in Redis.
            metrics: Gets the number of missing names.
            file: File that keeps the names until the next start of a replica, for this Redis only.
        """
        self.names: frozenset[PoolKey] = frozenset()
        self._directory = directory
        self._file = file
        self._seen: _Seen | None = None
        metrics.missing_pools.set_function(lambda: len(self.names))

    @property
    def warning(self) -> str | None:
        """What is missing, for operators; None if nothing is."""
        return f"missing since Redis lost data: {_describe(self.names)}" if self.names else None

    async def update(self, changes: Changes, listed: frozenset[PoolKey]) -> None:
        """Compare the names in Redis with those that this replica saw before.

        Args:
            changes: The changes of the database, read before the names.
            listed: The names of all pools and aliases.

        Raises:
            StateUnavailable: Redis is unavailable. The next call finds the same names again.
        """
        if self._seen is None:
            self._seen = await asyncio.to_thread(self._read)
        before = self._seen
        noted = await self._directory.missing()
        if (await self._directory.changes()).are_older_than(changes):
            return  # Redis lost data while the names were read: the next call notes the loss
        lost = frozenset[PoolKey]()
        if before and changes.are_older_than(before.changes):
            lost = before.names - listed - noted
        self._report((noted | lost) - listed)
        if lost:
            await self._directory.add_missing(lost)
        self._seen = _Seen(changes=changes, names=listed | self.names)
        if before is None or before.has_other_names(self._seen):
            await asyncio.to_thread(self._write, self._seen)

    def _report(self, missing: frozenset[PoolKey]) -> None:
        if lost := missing - self.names:
            _log.error("missing since Redis lost data: %s", _describe(lost))
        if back := self.names - missing:
            _log.info("no longer missing: %s", _describe(back))
        self.names = missing

    def _read(self) -> _Seen | None:
        """Return what the file holds; None if it is missing or damaged."""
        if self._file is None:
            return None
        try:
            return _Seen.model_validate_json(self._file.read_bytes())
        except (OSError, ValidationError):
            return None

    def _write(self, seen: _Seen) -> None:
        if self._file is None:
            return
        try:
            with replace_file(self._file) as path:
                path.write_text(seen.model_dump_json(), encoding="utf-8")
        except OSError as error:  # the data folder of a container is often read-only
            _log.debug("the names of pools are not kept in %s: %s", self._file, error)


def _describe(names: Iterable[PoolKey]) -> str:
    """Return the names, or the first ones and the number of the others."""
    listed = sorted(map(str, names))
    more = len(listed) - _SHOWN
    return ", ".join(listed[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
