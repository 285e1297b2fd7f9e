"""The format of a pool's log in Redis: an entry for each version, and chunks of candidates."""

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self, cast

import numpy as np

from turnwise.service.errors import PoolNotFound
from turnwise.service.pools.candidate import Candidate, Learned
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.wire import DEFAULT_NAMESPACE
from turnwise.service.wire.fields import EncoderName, StoreName
from turnwise.service.wire.pools import LearnFrom, PoolCalibration, PoolRequest, PoolSettings

Outcome = Literal["ok", "conflict", "expired"]
"""The result of a script: done; another writer was first; the staged chunks are gone."""


class PoolMoved(Exception):  # noqa: N818 - no error: the pool is read again from its new place
    """A pool that was read or edited is in another candidate store or collection by now."""


class PoolKey(NamedTuple):
    """The namespace and the name of a pool."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def describe(self) -> str:
        """Return the name for a message, with the namespace unless it is the default one."""
        if self.namespace == DEFAULT_NAMESPACE:
            return f"'{self.name}'"
        return f"'{self.name}' in namespace '{self.namespace}'"


def not_found(key: PoolKey) -> PoolNotFound:
    """Return the error that names the pool, and says how to create it."""
    return PoolNotFound(f"there is no pool {key.describe()}; create it with PUT /pools/{key.name}")


class Position(NamedTuple):
    """A version of a pool; a pool that is created again has another incarnation."""

    incarnation: str
    version: int
    stamp: str


class Revision(NamedTuple):
    """Identifies the state of a pool: after any change, at least one field differs.

    Attributes:
        stamp: The stamp of the newest version.
        settings: The settings that a PUT changes.
        encoder_name: The encoder of its candidates.
        store_name: Where they are.
        noted: Random, and new whenever the recall in a candidate store was measured.
    """

    stamp: str
    settings: PoolSettings
    encoder_name: EncoderName
    store_name: StoreName
    noted: str = ""

    @property
    def place(self) -> tuple[EncoderName, StoreName]:
        """The encoder and the store. If one of them changes, the pool is opened again."""
        return self.encoder_name, self.store_name


class Summary(NamedTuple):
    """What Redis knows of a pool without its log."""

    revision: Revision
    version: int
    size: int
    bytes: int
    """Bytes of the candidates; 0 if nothing was edited since a release that did not count them."""
    created_at: float


NOWHERE = Position("", 0, "")


@dataclass(frozen=True, slots=True)
class Collection:
    """Where a candidate store keeps the candidates of a pool, as Redis knows it.

    Attributes:
        name: Name of the collection in the store.
        fingerprint: Fingerprint of the model that encoded it.
        width: Candidates that the index looks at in a search (`ef`); None until it was measured.
        recall: Share of the exact top 10 that such a search finds, measured on running queries.
        measured: Size of the pool when that was measured.
    """

    name: str
    fingerprint: str
    width: int | None = None
    recall: float | None = None
    measured: int = 0


@dataclass(frozen=True, slots=True)
class StoredPool:
    """A pool whose candidates are in a candidate store, as Redis knows it."""

    revision: Revision
    position: Position
    size: int
    created_at: float
    collection: Collection


@dataclass(frozen=True, slots=True)
class Entry:
    """The change of one version; its candidates are in chunks."""

    stamp: str
    chunks: Sequence[str]
    count: int
    """Number of candidates in the chunks."""
    removed: Sequence[str]
    examples: int = 0
    """Number of their examples."""

    def to_json(self) -> bytes:
        """Return the entry as the log stores it. Earlier releases reject the field `examples`."""
        names = {name: getattr(self, name) for name in self.__slots__}
        if not self.examples:
            del names["examples"]
        return json.dumps(names, separators=(",", ":")).encode()


class Chunk(NamedTuple):
    """A part of an entry, as Redis keeps it.

    Attributes:
        candidates: What `pack_candidates` returned.
        vectors: Their vectors by this replica's model; None if it has none.
        examples: The vectors of their examples by this model; None if it has none.
    """

    candidates: bytes
    vectors: bytes | None
    examples: bytes | None


@dataclass(frozen=True, slots=True)
class Log:
    """A pool's log as it was read.

    Attributes:
        position: Position of its last entry.
        base: Version before its first entry.
        stored: Number of candidates in all chunks.
        candidate_bytes: Bytes of the candidates of its version; 0 if an old release wrote it.
        local: Whether the candidates are in the chunks, and not in a candidate store.
        has: Number of its entries that the reader has already.
        entries: The other entries, oldest first.
    """

    position: Position
    base: int
    stored: int
    candidate_bytes: int
    local: bool
    settings: PoolSettings
    created_at: float
    has: int
    entries: tuple[Entry, ...]

    @classmethod
    def from_redis(cls, meta: list[bytes | None], has: int, entries: list[bytes]) -> Self:
        """Return the log that the script `read` found."""
        fields = (field.decode() if field else "" for field in meta[:8])
        incarnation, version, stamp, base, stored, in_bytes, created_at, store = fields
        return cls(
            position=Position(incarnation, int(version), stamp),
            base=int(base),
            stored=int(stored),
            candidate_bytes=int(in_bytes or 0),
            local=store in {"", "local"},
            settings=unpack_settings(meta[8:]),
            created_at=float(created_at),
            has=has,
            entries=tuple(Entry(**json.loads(entry)) for entry in entries),
        )

    @property
    def chunks(self) -> list[str]:
        """The names of the chunks of `entries`, oldest first."""
        return [name for entry in self.entries for name in entry.chunks]

    @property
    def whole(self) -> bool:
        """Whether every version has an entry: Redis may have evicted some."""
        return self.base + self.has + len(self.entries) == self.position.version

    def until(self, position: Position) -> "Log | None":
        """Return the part up to a version of a log read from its start; None if it lacks that."""
        entries = self.entries[: max(0, position.version - self.base)]
        known = entries and entries[-1].stamp == position.stamp
        return replace(self, position=position, entries=entries) if known else None


_decoder = json.JSONDecoder()
SETTINGS = PoolSettings._fields
"""The fields of `meta` that hold settings. A pool of 0.1 has the description alone."""


def pack_settings(request: PoolRequest) -> list[str]:
    """Return the settings that a request names, each followed by its value; "" for none."""
    values = {
        "description": request.description,
        "min_confidence": "" if request.min_confidence is None else repr(request.min_confidence),
        "calibration": request.calibration.model_dump_json() if request.calibration else "",
        "learn": request.learn or "",
        "fallback": request.fallback or "",
    }
    packed: list[str] = []
    for name in SETTINGS:
        if name in request.model_fields_set:
            packed += [name, values[name]]
    return packed


def unpack_settings(stored: Sequence[bytes | None]) -> PoolSettings:
    """Return the settings from the values of the fields `SETTINGS`."""
    description, least, calibration, learn, fallback = (value or b"" for value in stored)
    return PoolSettings(
        description=description.decode(),
        min_confidence=float(least) if least else None,
        calibration=PoolCalibration.model_validate_json(calibration) if calibration else None,
        learn=cast(LearnFrom, learn.decode()) if learn else None,
        fallback=fallback.decode() or None,
    )


def pack_candidates(candidates: Sequence[Candidate]) -> bytes:
    """Return the candidates of a chunk as compressed JSON."""
    rows = b",".join(map(_pack_row, candidates))
    return zlib.compress(b"[" + rows + b"]", 1)


def _pack_row(candidate: Candidate) -> bytes:
    """Return `[id, text, metadata]` as JSON, with a fourth item for its other fields."""
    names = json.dumps([candidate.id, candidate.text], separators=(",", ":"))
    more = {
        "examples": candidate.examples,
        "group": candidate.group,
        "learned": candidate.learned,
        "body": candidate.body,
    }
    given = {name: value for name, value in more.items() if value}
    packed = b"," + json.dumps(given, separators=(",", ":")).encode() if given else b""
    metadata = candidate.metadata_json or b"{}"
    return names[:-1].encode() + b"," + metadata + packed + b"]"


def unpack_chunk(
    candidates: bytes, vectors: bytes | None, dimension: int
) -> tuple[list[Candidate], Float16 | None]:
    """Return n candidates, and their vectors (n, d) or None if they are missing or of another d."""
    unpacked = list(_unpack_rows(zlib.decompress(candidates).decode()))
    return unpacked, unpack_vectors(vectors, len(unpacked), dimension)


def unpack_vectors(vectors: bytes | None, count: int, dimension: int) -> Float16 | None:
    """Return n vectors (n, d); None if they are missing or of another d."""
    stored = vectors or b""
    if len(stored) != 2 * dimension * count:
        return None
    return np.frombuffer(stored, np.float16).reshape(count, dimension)


def _unpack_rows(rows: str) -> Iterator[Candidate]:
    """Yield the candidates of a chunk. Metadata may be large, so rows are parsed one by one."""
    start = len("[")
    end = len(rows) - len("]")
    while start < end:
        (id, text, metadata, *more), after = _decoder.raw_decode(rows, start)
        given = more[0] if more else {}
        yield Candidate.of(
            text,
            id,
            metadata,
            examples=given.get("examples", ()),
            group=given.get("group"),
            learned=(Learned(*each) for each in given.get("learned", ())),
            body=given.get("body"),
        )
        start = after + len(",")
