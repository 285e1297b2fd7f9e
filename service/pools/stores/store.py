"""The protocol of candidate stores, and the store that a URL names."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from turnwise.models.arrays import Float32
from turnwise.models.extras import install_line
from turnwise.service.errors import ServiceError, StoreUnavailable
from turnwise.service.observe.metrics import Metrics, StoreOperation
from turnwise.service.observe.tracing import exemplar, span
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.filter import Condition
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.settings import SettingsError
from turnwise.service.wire.fields import StoreName

PREFIX = "turnwise_"
"""Start of the names of all collections that Turnwise makes."""
_PROBE_SECONDS = 1.0
"""Time that a store has to answer."""
SCANNED = 1000
"""Candidates of a batch that is scanned or written: 1.6 MB with the default model."""

_log = logging.getLogger("turnwise.pools")


class Stored(NamedTuple):
    """A candidate and its vector (d,), as a store keeps them."""

    candidate: Candidate
    vector: Float16


class CandidateStore(Protocol):
    """Keeps collections of candidates; raises StoreUnavailable if the store cannot be reached.

    A collection holds candidates with distinct ids, and vectors of one model. A second one,
    `<collection>_examples`, is created and dropped with it (see `rows`).
    """

    name: StoreName

    async def create(self, collection: str, dimension: int) -> None:
        """Create an empty collection for vectors of length d, and one for its examples."""

    async def drop(self, collection: str) -> None:
        """Delete a collection, if there is one, and that of its examples."""

    async def upsert(
        self, collection: str, candidates: Sequence[Candidate], vectors: Float16
    ) -> None:
        """Add or replace at most `SCANNED` candidates with their vectors (n, d)."""

    async def settle(self, collection: str) -> None:
        """Ask for an index of what was written so far, which is built in the background."""

    async def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Remove candidates; ignore ids that the collection lacks."""

    async def search(
        self, collection: str, query: Float32, k: int, width: int, where: Condition | None
    ) -> list[Stored]:
        """Return about the k candidates with the largest inner products, in any order.

        All of the best k for which the condition holds are among them; there may be others.

        Args:
            collection: Name of the collection.
            query: (d,).
            k: Number of candidates, at most `deepest`.
            width: Candidates that an approximate index looks at (`ef`).
            where: Leaves out candidates that it does not hold for, but need not leave out all.
        """

    @property
    def deepest(self) -> int:
        """Most candidates that one search returns."""

    async def fetch(
        self, collection: str, ids: Sequence[str], *, newest: bool = True
    ) -> dict[str, Stored]:
        """Return the candidates with these ids that the collection has.

        Args:
            collection: Name of the collection.
            ids: The ids.
            newest: Whether to wait for all edits so far. Otherwise it sees what searches see.
        """

    async def list_after(
        self, collection: str, after: str, count: int, where: Condition | None
    ) -> list[Candidate]:
        """Return the candidates after an id in an order that stays, after all edits so far.

        Args:
            collection: Name of the collection.
            after: The id, which the collection need not have; empty for the beginning.
            count: Most candidates to return; if there are fewer, there are no more.
            where: Leaves out candidates that it does not hold for, but need not leave out all.
        """

    def scan(self, collection: str) -> AsyncGenerator[list[Stored]]:
        """Yield all candidates in batches, after all edits so far."""

    async def count(self, collection: str, where: Condition | None = None) -> int:
        """Return the number of candidates for which a condition holds, after all edits so far."""

    async def collections(self) -> list[str]:
        """Return the names of all collections that Turnwise made."""

    async def ping(self) -> None:
        """Return if the store answers."""

    async def close(self) -> None:
        """Close the connections."""


def connect_store(url: str, metrics: Metrics) -> CandidateStore:
    """Return the candidate store of a URL, which connects when it is first used.

    Args:
        url: `milvus://` or `qdrant://`, with TLS `milvuss://` or `qdrants://`. Its user and
            password are those of the store; an API key takes the place of the password.
        metrics: Gets the seconds of each call.

    Raises:
        SettingsError: The package of the store is not installed.
    """
    parts = urlsplit(url)
    engine = "milvus" if parts.scheme.startswith("milvus") else "qdrant"
    try:
        if engine == "milvus":
            from turnwise.service.pools.stores.milvus import Milvus  # noqa: PLC0415 - an extra

            return Milvus(parts, metrics)
        from turnwise.service.pools.stores.qdrant import Qdrant  # noqa: PLC0415 - an extra

        return Qdrant.at(parts, metrics)
    except ModuleNotFoundError as error:
        line = install_line("milvus") if engine == "milvus" else "pip install qdrant-client"
        raise SettingsError(
            f"TURNWISE_STORE_URL names {engine}, but the package '{error.name}' is missing: {line}"
        ) from None


async def does_answer(store: CandidateStore) -> bool:
    """Return whether a store answers in time."""
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            await store.ping()
    except (StoreUnavailable, TimeoutError) as error:
        _log.warning("the candidate store does not answer: %s", error or "timed out")
        return False
    return True


@contextmanager
def store_errors(
    metrics: Metrics, store: StoreName, operation: StoreOperation, *failures: type[Exception]
) -> Iterator[None]:
    """Measure and trace a call, and raise its failure as StoreUnavailable.

    Args:
        metrics: Gets the seconds and the result.
        store: Name of the store.
        operation: What the call does.
        failures: Errors of the store's client.
    """
    begin = perf_counter()
    result = "failed"
    try:
        with span(operation, calls=store):
            yield
        result = "ok"
    except ServiceError:
        raise
    except asyncio.CancelledError:
        result = "cancelled"
        raise
    except failures as error:
        result = "unavailable"
        why = " ".join(str(error).split())[:300]
        raise StoreUnavailable(f"{store} does not do its work: {why}") from error
    finally:
        seconds = perf_counter() - begin
        metrics.store_seconds.labels(store, operation, result).observe(seconds, exemplar())
