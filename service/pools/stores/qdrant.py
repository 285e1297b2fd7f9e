"""Qdrant as a candidate store: https://qdrant.tech. Experimental: no real server was tried yet.

A point has the vector, and the payload `id`, `text`, `metadata` (JSON as a string), `examples`,
`learned`, `group` and `body` (see `rows`), `facets`, and `numbers` (see `facets`). Qdrant takes no
strings as ids, so the id of a point is derived from `id`.
An edit is acknowledged when it is applied: searches see it at once.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import SplitResult
from uuid import NAMESPACE_URL, uuid5

import numpy as np
from qdrant_client import AsyncQdrantClient
from qdrant_client import models as q
from qdrant_client.http.exceptions import ApiException

from turnwise.models.arrays import Float32
from turnwise.service.observe.metrics import Metrics, StoreOperation
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.filter import Among, Combined, Condition, Exists, Within
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.pools.stores.facets import facets, path_facet, wanted_facets
from turnwise.service.pools.stores.rows import from_row, name_examples, to_row
from turnwise.service.pools.stores.store import PREFIX, SCANNED, Stored, store_errors
from turnwise.service.wire.fields import StoreName

_PORT = 6333
_SECONDS = 60


class Qdrant:
    """A `CandidateStore` in Qdrant."""

    name: StoreName = "qdrant"
    deepest = 10_000

    def __init__(self, client: AsyncQdrantClient, metrics: Metrics) -> None:
        self._client = client
        self._metrics = metrics

    @classmethod
    def at(cls, url: SplitResult, metrics: Metrics) -> "Qdrant":
        """Return the store at a URL."""
        client = AsyncQdrantClient(
            host=url.hostname,
            port=url.port or _PORT,
            https=url.scheme == "qdrants",
            api_key=url.password,
            timeout=_SECONDS,
            check_compatibility=False,  # it would connect now
        )
        return cls(client, metrics)

    async def create(self, collection: str, dimension: int) -> None:
        """Create empty collections; facets are indexed."""
        vectors = q.VectorParams(size=dimension, distance=q.Distance.DOT)
        keyword = q.PayloadSchemaType.KEYWORD
        with self._errors("create"):
            for name in (name_examples(collection), collection):
                await self._client.create_collection(name, vectors)
                await self._client.create_payload_index(name, "facets", keyword)

    async def drop(self, collection: str) -> None:
        """Delete the collections, if they exist."""
        with self._errors("drop"):
            for name in (name_examples(collection), collection):
                await self._client.delete_collection(name)

    async def upsert(
        self, collection: str, candidates: Sequence[Candidate], vectors: Float16
    ) -> None:
        """Write candidates, and wait until they are applied."""
        points = [
            q.PointStruct(id=_point(candidate.id), vector=vector, payload=_payload(candidate))
            for candidate, vector in zip(candidates, vectors.tolist(), strict=True)
        ]
        if points:
            with self._errors("upsert"):
                await self._client.upsert(collection, points)

    async def settle(self, collection: str) -> None:
        """Do nothing: Qdrant indexes what it holds by itself."""

    async def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Remove candidates, and wait until that is applied."""
        if ids:
            with self._errors("remove"):
                await self._client.delete(collection, [_point(one) for one in ids])

    async def search(
        self, collection: str, query: Float32, k: int, width: int, where: Condition | None
    ) -> list[Stored]:
        """Search the index; see `CandidateStore`."""
        with self._errors("search"):
            found = await self._client.query_points(
                collection,
                query=query.tolist(),
                limit=k,
                query_filter=points_filter(where, loose=True) if where else None,
                search_params=q.SearchParams(hnsw_ef=max(width, k)),
                with_vectors=True,
            )
        return [_stored_of(point) for point in found.points]

    async def fetch(
        self,
        collection: str,
        ids: Sequence[str],
        *,
        newest: bool = True,  # noqa: ARG002 - a search sees every edit
    ) -> dict[str, Stored]:
        """Return those of some candidates that the collection has."""
        with self._errors("fetch"):
            points = [_point(one) for one in ids]
            found = await self._client.retrieve(collection, points, with_vectors=True)
        return {stored.candidate.id: stored for stored in map(_stored_of, found)}

    async def list_after(
        self, collection: str, after: str, count: int, where: Condition | None
    ) -> list[Candidate]:
        """Return the candidates after an id, ordered by the ids of their points."""
        with self._errors("scan"):
            found, _ = await self._client.scroll(
                collection,
                scroll_filter=points_filter(where, loose=True) if where else None,
                limit=count + 1,
                offset=_point(after) if after else None,  # the first point that may be returned
            )
        candidates = [from_row(point.payload or {}) for point in found]
        return [candidate for candidate in candidates if candidate.id != after][:count]

    async def scan(self, collection: str) -> AsyncGenerator[list[Stored]]:
        """Yield all candidates in batches."""
        after: Any = None
        while True:
            with self._errors("scan"):
                found, after = await self._client.scroll(
                    collection, limit=SCANNED, offset=after, with_vectors=True
                )
            if found:
                yield [_stored_of(point) for point in found]
            if after is None:
                return

    async def count(self, collection: str, where: Condition | None = None) -> int:
        """Return the number of candidates for which a condition holds."""
        holds = points_filter(where, loose=True) if where else None
        with self._errors("count"):
            return (await self._client.count(collection, count_filter=holds)).count

    async def collections(self) -> list[str]:
        """Return the names of all collections that Turnwise made."""
        with self._errors("ping"):
            found = await self._client.get_collections()
        return sorted(one.name for one in found.collections if one.name.startswith(PREFIX))

    async def ping(self) -> None:
        """Ask for the collections."""
        await self.collections()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _errors(self, operation: StoreOperation) -> AbstractContextManager[None]:
        # The local mode of the client raises ValueError where a server answers 404.
        return store_errors(self._metrics, self.name, operation, ApiException, ValueError)


def _point(id: str) -> str:
    return str(uuid5(NAMESPACE_URL, id))


def _payload(candidate: Candidate) -> dict[str, Any]:
    strings, comparable = facets(candidate)
    numbers = [
        {"at": at, "number": value}
        for at, values in comparable.items()
        for value in values
        if not isinstance(value, str)
    ]
    return {**to_row(candidate), "facets": strings, "numbers": numbers}


def _stored_of(point: q.Record | q.ScoredPoint) -> Stored:
    return Stored(from_row(point.payload or {}), np.array(point.vector, np.float16))


def points_filter(condition: Condition, *, loose: bool) -> q.Filter:
    """Return a condition as a filter of Qdrant.

    Args:
        condition: The condition.
        loose: Whether the filter may hold for more candidates than the condition; otherwise it may
            hold for fewer.
    """
    match condition:
        case Combined(how, parts):
            # The negation of a strict filter is a loose one.
            inner_loose = not loose if how == "none" else loose
            inner: list[q.Condition] = [points_filter(part, loose=inner_loose) for part in parts]
            if how == "all":
                return q.Filter(must=inner)
            return q.Filter(should=inner) if how == "any" else q.Filter(must_not=inner)
        case Among() | Exists():
            return _having(wanted_facets(condition))
        case Within(path, bounds):
            at = path_facet(path)
            numbers = [bound for bound in bounds.values() if not isinstance(bound, str)]
            if len(numbers) == len(bounds):
                within = q.Range(**dict(zip(bounds, numbers, strict=True)))
                here = q.FieldCondition(key="at", match=q.MatchValue(value=at))
                number = q.FieldCondition(key="number", range=within)
                nested = q.Nested(key="numbers", filter=q.Filter(must=[here, number]))
                return q.Filter(must=[q.NestedCondition(nested=nested)])
            if loose:  # Qdrant compares numbers alone: what has a value is checked here
                return _having([at])
    return q.Filter(must_not=[]) if loose else q.Filter(must=[q.HasIdCondition(has_id=[])])


def _having(wanted: list[str]) -> q.Filter:
    return q.Filter(must=[q.FieldCondition(key="facets", match=q.MatchAny(any=wanted))])
