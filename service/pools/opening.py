"""Opens pools: which ones this replica can serve, and as what."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.limits import CheckGrowth, PoolLimits
from turnwise.service.pools.memory.free_memory import Memory
from turnwise.service.pools.memory.index_files import IndexFiles
from turnwise.service.pools.memory.local import LocalPool
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.pools.pool import Backend, Pool
from turnwise.service.pools.redis.values import PoolKey, Revision
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.pools.stores.remote import RemotePool
from turnwise.service.wire.fields import EncoderName, StoreName


class PoolOpener:
    """Makes the pools of this replica.

    Attributes:
        backends: The encoders that pools can have, by their names on the wire.
        memory: Admits work on all pools.
        files: The saved indexes.
    """

    def __init__(
        self,
        backends: Mapping[EncoderName, Backend],
        workers: Workers,
        metrics: Metrics,
        *,
        limits: PoolLimits,
        index_folder: Path,
        store: CandidateStore | None,
        count_change: Callable[[], Awaitable[None]],
        check_growth: CheckGrowth | None,
    ) -> None:
        """Open nothing yet; most arguments are those of `FollowedPools`."""
        self.backends = backends
        self.memory = Memory()
        self.files = IndexFiles(index_folder)
        self._workers = workers
        self._metrics = metrics
        self._limits = limits
        self._store = store
        self._count_change = count_change
        self._check_growth = check_growth

    def open(self, key: PoolKey, revision: Revision) -> Pool:
        """Return a pool that has read nothing from Redis yet."""
        backend = self.backends[revision.encoder_name]
        engine = self.engine(revision.store_name)
        if engine:
            return RemotePool(
                key,
                backend,
                engine,
                self._workers,
                self._metrics,
                newest=revision,
                count_change=self._count_change,
            )
        return LocalPool(
            key,
            backend,
            self._workers,
            self.memory,
            self._metrics,
            newest=revision,
            count_change=self._count_change,
            files=self.files,
            limits=self._limits,
            check_growth=self._check_growth,
        )

    def engine(self, store: StoreName) -> CandidateStore | None:
        """Return the candidate store of this name; None if this service has none."""
        return self._store if self._store and self._store.name == store else None

    def obstacle(self, revision: Revision) -> str | None:
        """Return why this replica cannot serve a pool; None if it can."""
        if revision.encoder_name not in self.backends:
            return explain_missing_encoder(revision.encoder_name)
        if revision.store_name != "local" and self.engine(revision.store_name) is None:
            return explain_missing_store(revision.store_name)
        return None


def explain_missing_encoder(name: EncoderName) -> str:
    """Return what to do about an encoder that this service lacks."""
    return f"this service has no encoder '{name}': TURNWISE_PAIRWISE names its folder"


def explain_missing_store(name: StoreName) -> str:
    """Return what to do about a candidate store that this service lacks."""
    return f"this service has no candidate store '{name}': TURNWISE_STORE_URL names it"
