"""Listing keys of Redis a page at a time, on one server or on every primary of a cluster."""

import hashlib
import re
from typing import Any, NamedTuple

from redis.asyncio import Redis, RedisCluster

PAGE_KEYS = 500
"""Keys after which a page ends. The last SCAN may return some more."""
PAGE_SCANS = 100
"""SCAN commands after which a page ends. Each looks at some 500 keys."""
_CURSOR = re.compile(r"([0-9a-f]{16})-([0-9]{1,4})-([0-9]{1,19})")
"""A hash of the servers' ids, the index of the server to scan, and its own cursor."""


class Page(NamedTuple):
    """Some keys that match, without duplicates."""

    keys: list[str]
    cursor: str | None
    """The cursor of the next page; None after the last one."""


async def scan_page(redis: Redis, pattern: str, cursor: str | None) -> Page | None:
    """Return the page of matching keys that a cursor names; the first one without a cursor.

    Every key that exists from the first page to the last one is on a page. The keys have no order.

    Returns:
        The page; None if the cursor is not valid. It becomes invalid when a server is restarted
        or replaced, because another server would continue elsewhere.
    """
    servers = await _servers(redis)
    these = hashlib.sha256(" ".join(servers).encode()).hexdigest()[:16]
    match = _CURSOR.fullmatch(cursor or f"{these}-0-0")
    if not match or match[1] != these:
        return None
    index = int(match[2])
    position = int(match[3])
    targets = list(servers.values())
    found = dict[str, None]()
    for _ in range(PAGE_SCANS):
        if index >= len(targets) or len(found) >= PAGE_KEYS:
            break
        position, keys = await _scan(redis, targets[index], position, pattern)
        found.update(dict.fromkeys(keys))
        if position == 0:
            index += 1
    following = f"{these}-{index}-{position}" if index < len(targets) else None
    return Page(list(found), following)


async def _servers(redis: Redis) -> dict[str, dict[str, Any]]:
    """Return the options that direct a command to each server, by the id of its process."""
    targets: list[dict[str, Any]] = [{}]
    if isinstance(redis, RedisCluster):
        # The client knows no node before its first command, and new ones only after an error.
        await redis.initialize()
        await redis.nodes_manager.initialize()
        targets = [{"target_nodes": node} for node in redis.get_primaries()]
    infos = [await redis.info("server", **target) for target in targets]
    by_id = {info["run_id"]: target for info, target in zip(infos, targets, strict=True)}
    return dict(sorted(by_id.items()))


async def _scan(
    redis: Redis, target: dict[str, Any], position: int, pattern: str
) -> tuple[int, list[str]]:
    found: Any = await redis.scan(position, match=pattern, count=PAGE_KEYS, **target)
    after, keys = found
    if isinstance(after, dict):  # of a cluster, by the name of the node
        (after,) = after.values()
    return int(after), [key.decode() for key in keys]
