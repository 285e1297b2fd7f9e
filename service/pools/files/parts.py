"""Parts: an encoded catalogue as a folder of Parquet files and a manifest, local or at a URL.

The manifest says which parts there are. It is written first, and each part is written whole. So an
encoding that was interrupted can be continued, and several processes can share the folder.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Self

import fsspec
import pyarrow as pa
from pyarrow import parquet
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from turnwise.models.errors import TurnwiseError, first_error
from turnwise.models.roles import EncoderKind
from turnwise.service.encoder.model import Encoder
from turnwise.service.pools.files.catalogue import Catalogue, url_errors
from turnwise.service.pools.files.stored import IdCheck, parse_metadata, read_stored_candidate
from turnwise.service.pools.memory.flat import Float16, are_unit
from turnwise.service.pools.view import CandidateBatch
from turnwise.service.urls import show_url

FORMAT = 1
_MANIFEST = "manifest.json"


class PartsError(TurnwiseError):
    """A folder holds no complete encoding, or one of another catalogue or model."""


class EncodedBy(BaseModel):
    """The model that encoded a catalogue."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    fingerprint: str
    dimension: PositiveInt
    kind: EncoderKind

    @classmethod
    def of(cls, encoder: Encoder) -> Self:
        """Return the facts of an encoder."""
        return cls(
            model=encoder.name,
            fingerprint=encoder.fingerprint,
            dimension=encoder.dimension,
            kind=encoder.kind,
        )


class Part(BaseModel):
    """A part: the candidates from one index of the catalogue to another, without repetitions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: NonNegativeInt
    stop: PositiveInt
    digest: str
    """Digest of these candidates."""

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"part-{self.start:012}-{self.stop:012}.parquet"

    def facts(self, encoded_by: EncodedBy) -> dict[bytes, bytes]:
        """Return the metadata that the schema of its file must have."""
        stated = {"format": str(FORMAT), "digest": self.digest, **encoded_by.model_dump()}
        return {f"turnwise.{name}".encode(): str(value).encode() for name, value in stated.items()}


class PartsManifest(BaseModel):
    """The manifest of an encoded catalogue."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    size: NonNegativeInt
    """Number of candidates, without repetitions."""
    encoded_by: EncodedBy
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, catalogue: Catalogue, encoded_by: EncodedBy) -> Self:
        """Return the manifest of a catalogue that a model is to encode."""
        parts = tuple(
            Part(start=start, stop=stop, digest=catalogue.digest(start, stop))
            for start, stop in catalogue.ranges
        )
        size = len(catalogue) - int(catalogue.repeated.sum())
        return cls(format=FORMAT, size=size, encoded_by=encoded_by, parts=parts)


class PartsFolder:
    """A folder of parts; methods raise OSError if it cannot be read or written."""

    def __init__(self, url: str) -> None:
        """Read nothing yet.

        Raises:
            TurnwiseError: No installed package can open the URL.
        """
        self._place = show_url(url)
        with url_errors(url):
            self._system, self._root = fsspec.url_to_fs(url)

    def begin(self, manifest: PartsManifest) -> None:
        """Write the manifest, unless it is there.

        Raises:
            PartsError: The folder has parts of another catalogue or model.
        """
        if not self._system.exists(self._path_of(_MANIFEST)):
            self._system.makedirs(self._root, exist_ok=True)
            self._write(_MANIFEST, manifest.model_dump_json(indent=1).encode() + b"\n")
        elif (found := self.manifest()) != manifest:
            what = "catalogue" if found.encoded_by == manifest.encoded_by else "model"
            raise PartsError(f"'{self._place}' has parts of another {what}: name another folder")

    def manifest(self) -> PartsManifest:
        """Return the manifest.

        Raises:
            PartsError: There is none, or it is damaged.
        """
        try:
            text = self._system.cat_file(self._path_of(_MANIFEST))
            manifest = PartsManifest.model_validate_json(text)
        except FileNotFoundError:
            raise PartsError(
                f"'{self._place}' holds no encoded catalogue: no {_MANIFEST}"
            ) from None
        except ValidationError as error:
            raise PartsError(f"'{self._place}': {_MANIFEST}: {first_error(error)}") from None
        if manifest.format != FORMAT:
            raise PartsError(
                f"'{self._place}': it has format {manifest.format}, and this release reads format "
                f"{FORMAT}"
            )
        return manifest

    def missing(self, manifest: PartsManifest) -> list[Part]:
        """Return the parts that are not there yet.

        Raises:
            PartsError: A file of that name is not such a part.
        """
        files = {path.rpartition("/")[2] for path in self._system.ls(self._root, detail=False)}
        for part in manifest.parts:
            if part.name in files:
                with (
                    self._system.open(self._path_of(part.name)) as file,
                    self._translate_damage(part),
                ):
                    schema = parquet.read_schema(file)
                self._check_origin(schema, manifest, part)
        return [part for part in manifest.parts if part.name not in files]

    def write(self, encoded_by: EncodedBy, part: Part, batch: CandidateBatch) -> None:
        """Write a part, whole or not at all."""
        table = _make_table(batch).replace_schema_metadata(part.facts(encoded_by))
        buffer = BytesIO()
        parquet.write_table(
            table, buffer, compression="zstd", use_dictionary=False, write_page_checksum=True
        )
        self._write(part.name, buffer.getvalue())

    def batches(self, manifest: PartsManifest) -> Iterator[CandidateBatch]:
        """Yield the candidates of each part with their vectors.

        Raises:
            PartsError: A part is damaged; or, after the last one, an id repeats.
            DataError: A candidate exceeds a limit of uploads.
        """
        ids = IdCheck()
        for part in manifest.parts:
            batch = self._read(manifest, part)
            ids.add(batch.candidates)
            yield batch
        read_again = (self._read(manifest, part) for part in manifest.parts)
        repeated = ids.find_repeated(each.id for batch in read_again for each in batch.candidates)
        if repeated is not None:
            raise PartsError(f"'{self._place}': '{repeated}' is the id of several candidates")

    def _read(self, manifest: PartsManifest, part: Part) -> CandidateBatch:
        buffer = BytesIO(self._system.cat_file(self._path_of(part.name)))
        with self._translate_damage(part):
            table = parquet.read_table(buffer, page_checksum_verification=True)
        self._check_origin(table.schema, manifest, part)
        with self._translate_damage(part):
            return _read_batch(table, self._path_of(part.name), manifest.encoded_by.dimension)

    @contextmanager
    def _translate_damage(self, part: Part) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
            raise PartsError(f"{self._path_of(part.name)} is damaged: {error}") from None

    def _check_origin(self, schema: pa.Schema, manifest: PartsManifest, part: Part) -> None:
        if schema.metadata != part.facts(manifest.encoded_by):
            path = self._path_of(part.name)
            raise PartsError(f"{path} is a part of another catalogue or model: delete it")

    def _path_of(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _write(self, name: str, content: bytes) -> None:
        unfinished = self._path_of(f".{name}.{secrets.token_hex(4)}")
        self._system.pipe_file(unfinished, content)
        self._system.mv(unfinished, self._path_of(name))


def _make_table(batch: CandidateBatch) -> pa.Table:
    candidates = batch.candidates
    metadata = [json.dumps(each.metadata, ensure_ascii=False) for each in candidates]
    examples = pa.array([each.examples for each in candidates], pa.list_(pa.string()))
    columns = {
        "id": pa.array([each.id for each in candidates], pa.string()),
        "text": pa.array([each.text for each in candidates], pa.string()),
        "metadata": pa.array(metadata, pa.string()),
        "vector": _vector_column(batch.vectors),
        "examples": examples,
        "example_vectors": pa.ListArray.from_arrays(
            examples.offsets, _vector_column(batch.examples)
        ),
        "group": pa.array([each.group for each in candidates], pa.string()),
        "body": pa.array([each.body for each in candidates], pa.string()),
    }
    return pa.table(columns)


def _vector_column(vectors: Float16) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(
        pa.array(vectors.ravel(), pa.float16()), vectors.shape[1]
    )


def _read_batch(table: pa.Table, file: str, dimension: int) -> CandidateBatch:
    """Return the candidates of a part; one of an earlier release lacks some columns."""
    named = ("id", "text", "metadata", "examples", "group", "body")
    rows = table.select([name for name in named if name in table.column_names]).to_pylist()
    candidates = [
        read_stored_candidate(row | {"metadata": parse_metadata(row["metadata"], file)}, file)
        for row in rows
    ]
    vectors = _read_vectors(table["vector"].combine_chunks(), dimension)
    examples = vectors[:0]
    if "example_vectors" in table.column_names:
        examples = _read_vectors(table["example_vectors"].combine_chunks().flatten(), dimension)
    if len(examples) != sum(each.example_count for each in candidates):
        raise ValueError("it has not one vector for each example")
    return CandidateBatch(candidates, vectors, examples)


def _read_vectors(column: pa.FixedSizeListArray, dimension: int) -> Float16:
    flat = column.flatten().to_numpy(zero_copy_only=False)
    vectors: Float16 = flat.reshape(-1, dimension)
    if not are_unit(vectors):
        raise ValueError("vectors are not of unit length")
    return vectors
