"""Opens the pools that this replica can serve, in memory or in a candidate store."""

from collections.abc import Mapping

from turnwise.service.pools.memory.local import LocalPool
from turnwise.service.pools.pool import Backend, Pool
from turnwise.service.pools.redis.values import PoolKey, Revision
from turnwise.service.pools.resources import PoolResources
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.pools.stores.remote import RemotePool
from turnwise.service.wire.fields import EncoderName, StoreName


class PoolOpener:
    """Makes the pools of this replica.

    Attributes:
        backends: The encoders that pools can have, by their names on the wire.
    """

    def __init__(
        self,
        backends: Mapping[EncoderName, Backend],
        resources: PoolResources,
        store: CandidateStore | None,
    ) -> None:
        self.backends = backends
        self._resources = resources
        self._store = store

    def open(self, key: PoolKey, revision: Revision) -> Pool:
        """Return a pool that has read nothing from Redis yet."""
        backend = self.backends[revision.encoder_name]
        engine = self.find_engine(revision.store_name)
        if engine:
            return RemotePool(key, backend, revision, self._resources, engine)
        return LocalPool(key, backend, revision, self._resources)

    def find_engine(self, store: StoreName) -> CandidateStore | None:
        """Return the candidate store of this name; None if this service has none."""
        return self._store if self._store and self._store.name == store else None

    def find_obstacle(self, revision: Revision) -> str | None:
        """Return why this replica cannot serve a pool; None if it can."""
        if revision.encoder_name not in self.backends:
            return explain_missing_encoder(revision.encoder_name)
        if revision.store_name != "local" and self.find_engine(revision.store_name) is None:
            return explain_missing_store(revision.store_name)
        return None


def explain_missing_encoder(name: EncoderName) -> str:
    """Return what to do about an encoder that this service lacks."""
    return f"this service has no encoder '{name}': TURNWISE_PAIRWISE names its folder"


def explain_missing_store(name: StoreName) -> str:
    """Return what to do about a candidate store that this service lacks."""
    return f"this service has no candidate store '{name}': TURNWISE_STORE_URL names it"
