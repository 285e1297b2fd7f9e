"""Fills a new collection in a candidate store, for a pool that is moved or replaced."""

import re
import secrets
from collections.abc import AsyncIterable
from contextlib import suppress

from turnwise.service.errors import StateUnavailable, StoreUnavailable
from turnwise.service.pools.encoding import PoolEncoder
from turnwise.service.pools.redis.records import PoolRecords
from turnwise.service.pools.redis.values import Collection, PoolKey
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.pools.stores.rows import name_examples, write
from turnwise.service.pools.stores.store import PREFIX
from turnwise.service.pools.view import CandidateBatch

_UNSAFE = re.compile(r"[^A-Za-z0-9]")


async def create_collection(
    key: PoolKey, store: CandidateStore, encoder: PoolEncoder
) -> Collection:
    """Return a new collection, by whose name operators recognise the pool."""
    name = "_".join(_UNSAFE.sub("_", part)[:64] for part in key)
    collection = Collection(f"{PREFIX}{name}_{secrets.token_hex(8)}", encoder.fingerprint)
    await store.create(collection.name, encoder.dimension)
    return collection


async def fill_collection(
    key: PoolKey,
    store: CandidateStore,
    encoder: PoolEncoder,
    batches: AsyncIterable[CandidateBatch],
) -> Collection:
    """Return a new collection with these candidates; none is left if that fails."""
    collection = await create_collection(key, store, encoder)
    try:
        async for batch in batches:
            await write(store, collection.name, batch)
        await store.settle(collection.name)
        await store.settle(name_examples(collection.name))
    except BaseException:
        with suppress(StoreUnavailable):
            await store.drop(collection.name)
        raise
    return collection


async def drop_unused(
    records: PoolRecords, key: PoolKey, store: CandidateStore, collection: str
) -> None:
    """Drop a collection, unless the pool points at it.

    A command that failed may have been executed, so the record in Redis decides. If Redis or the
    store cannot be reached, the collection stays, and `doctor` reports it.
    """
    with suppress(StateUnavailable, StoreUnavailable):
        pool = await records.stored(key)
        if pool is None or pool.collection.name != collection:
            await store.drop(collection)
