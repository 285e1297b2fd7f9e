"""Milvus as a candidate store: https://milvus.io, tried with 2.3.5.

A collection has the columns `id`, `text`, `metadata` (JSON as a string, which keeps it as it is),
`examples`, `learned`, `group` and `body` (see `rows`; an earlier release made no such columns),
`facets` (JSON: see `facets`) and `vector`, with an HNSW index for inner products. An edit is
acknowledged when Milvus has it in its log; searches see it within a second. `fetch`, `scan` and
`count` wait until they see it.
"""

import json
import logging
from collections.abc import AsyncGenerator, Sequence
from time import monotonic
from typing import Any
from urllib.parse import SplitResult

import numpy as np
from pymilvus import AsyncMilvusClient, DataType, MilvusClient, MilvusException

from turnwise.models.arrays import Float32
from turnwise.service.observe.metrics import Metrics, StoreOperation
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.filter import Among, Combined, Condition, Exists, Within
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.pools.stores.facets import facets, path_facet, wanted_facets
from turnwise.service.pools.stores.rows import from_row, name_examples, to_row
from turnwise.service.pools.stores.store import PREFIX, SCANNED, Stored, store_errors
from turnwise.service.wire.fields import MAX_CANDIDATE_BODY_BYTES, StoreName
from turnwise.service.wire.pools import MOST_EXAMPLES

_PORT = 19530
_LINKS = 16
"""`M` of HNSW."""
_BUILD_WIDTH = 200
"""`efConstruction` of HNSW."""
SECONDS = 5.0
"""Seconds that a call may take; a request's own deadline may be shorter."""
_LONG_SECONDS = 60.0
"""Seconds that a call may take that creates a collection, or writes or counts many candidates."""
_BOUNDED_SECONDS = 10.0
"""Age from which "Bounded" queries see an edit: twice the default of Milvus (`gracefulTime`)."""
_ID_BYTES = 512
_TEXT_BYTES = 8000
_LEARNED_BYTES = 32_768
_METADATA_BYTES = 16_384
_ITEMS = 4
"""Values of a list that a range compares in Milvus; it finds longer lists, and they are checked."""
_COLUMNS = ["id", "text", "metadata", "examples", "learned", "group", "body", "vector"]
_COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}

logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # each failure is raised as well


class Milvus:
    """A `CandidateStore` in Milvus."""

    name: StoreName = "milvus"
    deepest = 16_384

    def __init__(self, url: SplitResult, metrics: Metrics) -> None:
        scheme = "https" if url.scheme == "milvuss" else "http"
        self._uri = f"{scheme}://{url.hostname}:{url.port or _PORT}"
        self._token = f"{url.username or ''}:{url.password or ''}".strip(":")
        self._metrics = metrics
        self._opened: AsyncMilvusClient | None = None
        self._columns: dict[str, list[str]] = {}
        """The columns of the collections that were used."""

    async def create(self, collection: str, dimension: int) -> None:
        """Create empty collections with their indexes, ready to be searched."""
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=_ID_BYTES)
        schema.add_field("text", DataType.VARCHAR, max_length=_TEXT_BYTES)
        schema.add_field("metadata", DataType.VARCHAR, max_length=_METADATA_BYTES)
        for name, length in (("examples", _TEXT_BYTES), ("learned", _LEARNED_BYTES)):
            schema.add_field(
                name,
                DataType.ARRAY,
                element_type=DataType.VARCHAR,
                max_capacity=MOST_EXAMPLES,
                max_length=length,
            )
        schema.add_field("group", DataType.VARCHAR, max_length=_ID_BYTES)
        schema.add_field("body", DataType.VARCHAR, max_length=MAX_CANDIDATE_BODY_BYTES)
        schema.add_field("facets", DataType.JSON)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimension)
        index = MilvusClient.prepare_index_params()
        parameters = {"M": _LINKS, "efConstruction": _BUILD_WIDTH}
        index.add_index("vector", index_type="HNSW", metric_type="IP", params=parameters)
        for name in (name_examples(collection), collection):
            await self._call(
                "create",
                "create_collection",
                name,
                schema=schema,
                index_params=index,
                timeout=_LONG_SECONDS,
            )

    async def drop(self, collection: str) -> None:
        """Delete the collections, if they exist."""
        for name in (name_examples(collection), collection):
            await self._call("drop", "drop_collection", name, timeout=_LONG_SECONDS)
            self._columns.pop(name, None)

    async def upsert(
        self, collection: str, candidates: Sequence[Candidate], vectors: Float16
    ) -> None:
        """Write candidates into Milvus's log."""
        columns = {*await self._read_columns(collection), "facets"}
        rows = [
            {name: value for name, value in _row(candidate, vector).items() if name in columns}
            for candidate, vector in zip(candidates, vectors.astype(np.float32), strict=True)
        ]
        await self._call("upsert", "upsert", collection, rows, timeout=_LONG_SECONDS)

    async def settle(self, collection: str) -> None:
        """Seal the growing segments, which Milvus indexes when they are sealed."""
        await self._call("flush", "flush", collection, timeout=_LONG_SECONDS)

    async def remove(self, collection: str, ids: Sequence[str]) -> None:
        """Write deletions into Milvus's log, which takes no empty list."""
        if ids:
            await self._call("remove", "delete", collection, ids=list(ids), timeout=_LONG_SECONDS)

    async def search(
        self, collection: str, query: Float32, k: int, width: int, where: Condition | None
    ) -> list[Stored]:
        """Search the index; see `CandidateStore`."""
        (found,) = await self._call(
            "search",
            "search",
            collection,
            [query],
            limit=k,
            filter=expression(where, loose=True) if where else "",
            output_fields=await self._read_columns(collection),
            search_params={"params": {"ef": max(width, k)}},
            consistency_level="Bounded",
            timeout=SECONDS,
        )
        return [_stored_of(hit["entity"]) for hit in found]

    async def fetch(
        self, collection: str, ids: Sequence[str], *, newest: bool = True
    ) -> dict[str, Stored]:
        """Return those of some candidates that the collection has."""
        found: dict[str, Stored] = {}
        level = "Strong" if newest else "Bounded"
        columns = await self._read_columns(collection)
        for start in range(0, len(ids), SCANNED):
            some = f"id in {json.dumps(list(ids[start : start + SCANNED]), ensure_ascii=False)}"
            rows = await self._query("fetch", collection, some, columns, level)
            found |= {row["id"]: _stored_of(row) for row in rows}
        return found

    async def list_after(
        self, collection: str, after: str, count: int, where: Condition | None
    ) -> list[Candidate]:
        """Return the candidates after an id, ordered by id."""
        wanted = f"id > {json.dumps(after, ensure_ascii=False)}"
        if where:
            wanted += f" and {expression(where, loose=True)}"
        columns = [name for name in await self._read_columns(collection) if name != "vector"]
        rows = await self._query("scan", collection, wanted, columns, limit=count)
        return sorted(map(from_row, rows), key=lambda candidate: candidate.id)

    async def scan(self, collection: str) -> AsyncGenerator[list[Stored]]:
        """Yield all candidates in batches, ordered by id."""
        last = ""
        begin = monotonic()
        columns = await self._read_columns(collection)
        while True:
            after = f"id > {json.dumps(last, ensure_ascii=False)}"
            # A query that has to see the newest edit waits some 0.2 s, far longer than it reads.
            level = "Strong" if monotonic() < begin + _BOUNDED_SECONDS else "Bounded"
            rows = await self._query("scan", collection, after, columns, level, limit=SCANNED)
            if not rows:
                return
            yield [_stored_of(row) for row in rows]
            last = max(row["id"] for row in rows)

    async def count(self, collection: str, where: Condition | None = None) -> int:
        """Return the number of candidates for which a condition holds."""
        holds = expression(where, loose=True) if where else ""
        (row,) = await self._query("count", collection, holds, ["count(*)"])
        return int(row["count(*)"])

    async def collections(self) -> list[str]:
        """Return the names of all collections that Turnwise made."""
        names = await self._call("ping", "list_collections", timeout=SECONDS)
        return sorted(name for name in names if name.startswith(PREFIX))

    async def ping(self) -> None:
        """Ask for its version."""
        await self._call("ping", "get_server_version", timeout=SECONDS)

    async def close(self) -> None:
        """Close the connection."""
        if self._opened:
            await self._opened.close()

    async def _read_columns(self, collection: str) -> list[str]:
        """Return the columns that make a candidate and its vector."""
        if collection not in self._columns:
            found = await self._call("ping", "describe_collection", collection, timeout=SECONDS)
            names = {field["name"] for field in found["fields"]}
            self._columns[collection] = [name for name in _COLUMNS if name in names]
        return self._columns[collection]

    async def _query(
        self,
        operation: StoreOperation,
        collection: str,
        where: str,
        columns: list[str],
        level: str = "Strong",
        **given: int,
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = await self._call(
            operation,
            "query",
            collection,
            filter=where,
            output_fields=columns,
            consistency_level=level,
            timeout=_LONG_SECONDS,
            **given,
        )
        return rows

    async def _call(self, operation: StoreOperation, method: str, *args: Any, **given: Any) -> Any:  # noqa: ANN401
        with store_errors(self._metrics, self.name, operation, MilvusException):
            if self._opened is None:  # in the loop that uses it
                self._opened = AsyncMilvusClient(self._uri, token=self._token)
            return await getattr(self._opened, method)(*args, **given)


def _row(candidate: Candidate, vector: Float32) -> dict[str, Any]:
    strings, comparable = facets(candidate)
    return {
        **to_row(candidate),
        "facets": {
            "strings": strings,
            "values": {at: values[:_ITEMS] for at, values in comparable.items()},
            "long": [at for at, values in comparable.items() if len(values) > _ITEMS],
        },
        "vector": vector,
    }


def _stored_of(row: dict[str, Any]) -> Stored:
    return Stored(from_row(row), np.array(row["vector"], np.float16))


def expression(condition: Condition, *, loose: bool) -> str:
    """Return a condition as a boolean expression of Milvus.

    Args:
        condition: The condition.
        loose: Whether the expression may hold for more candidates than the condition; otherwise it
            may hold for fewer.
    """
    match condition:
        case Combined("none", parts):  # the negation of a strict expression is a loose one
            inner = [expression(part, loose=not loose) for part in parts]
            return f"not ({' or '.join(inner)})"
        case Combined(how, parts):
            inner = [expression(part, loose=loose) for part in parts]
            return f"({(' and ' if how == 'all' else ' or ').join(inner)})"
        case Among() | Exists():
            return _contains("strings", wanted_facets(condition))
    assert isinstance(condition, Within)  # there is no other
    at = path_facet(condition.path)
    items = [f"facets[{_text('values')}][{_text(at)}][{index}]" for index in range(_ITEMS)]
    bounds = condition.bounds.items()
    inner = [
        " and ".join(f"{item} {_COMPARISONS[name]} {_text(bound)}" for name, bound in bounds)
        for item in items
    ]
    maybe = [_contains("long", [at])] if loose else []
    return "(" + " or ".join([f"({each})" for each in inner] + maybe) + ")"


def _contains(field: str, wanted: Sequence[str]) -> str:
    values = ", ".join(map(_text, wanted))
    return f"json_contains_any(facets[{_text(field)}], [{values}])"


def _text(value: str | float) -> str:
    return json.dumps(value, ensure_ascii=False)
