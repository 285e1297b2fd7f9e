"""Snapshots of pools: a folder of candidates (JSON Lines), vectors (.npy) and a manifest.

If candidates have examples, there is a further file with their vectors.
"""

import asyncio
import hashlib
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.lib.format import open_memmap
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from turnwise.models.errors import DataError, TurnwiseError, first_error
from turnwise.models.files import create_folder
from turnwise.models.text_files import write_jsonl
from turnwise.models.texts import write_count
from turnwise.service.pools.encoding import EncodingProgress, PoolEncoder, encode_batch
from turnwise.service.pools.files.stored import IdCheck, read_stored_candidates
from turnwise.service.pools.memory.examples import Size
from turnwise.service.pools.memory.flat import Float16, are_unit
from turnwise.service.pools.view import CandidateBatch, PoolView
from turnwise.service.settings import describe_excess
from turnwise.service.wire.fields import EncoderName, Name, Share, Text
from turnwise.service.wire.pools import LearnFrom, PoolCalibration, PoolRequest, PoolSettings

FORMAT = 1
MANIFEST = "manifest.json"
_CANDIDATES = "candidates.jsonl"
_VECTORS = "vectors.npy"
_EXAMPLES = "examples.npy"
_FILES = {_CANDIDATES, _VECTORS}
"""The files of every snapshot; one with examples has their vectors too."""
_BLOCK = 1 << 20
BATCH = 10_000
"""Candidates that are read at once."""
_MOST_MANIFEST_BYTES = 65_536


class SnapshotError(TurnwiseError):
    """A snapshot is incomplete or damaged, or cannot be written."""


class File(BaseModel):
    """A file of a snapshot."""

    model_config = ConfigDict(extra="forbid")

    bytes: NonNegativeInt
    sha256: str


class SnapshotManifest(BaseModel):
    """The manifest of a snapshot."""

    model_config = ConfigDict(extra="forbid")

    format: int
    pool: Name
    version: NonNegativeInt
    size: NonNegativeInt
    description: str = Field(default="", max_length=1000)
    """Description of the pool, as its other settings."""
    min_confidence: Share | None = None
    calibration: PoolCalibration | None = None
    learn: LearnFrom | None = None
    fallback: Text | None = None
    encoder: EncoderName = "default"
    model: str
    fingerprint: str
    """Fingerprint of the model that encoded the vectors."""
    dimension: PositiveInt
    files: dict[str, File]

    @property
    def settings(self) -> PoolSettings:
        """The settings of the pool."""
        return PoolSettings(*(getattr(self, name) for name in PoolSettings._fields))

    def request(self) -> PoolRequest:
        """Return the request that creates such a pool."""
        return PoolRequest(encoder=self.encoder, **self.settings._asdict())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A complete snapshot that agrees with its manifest; its candidates stay in its folder."""

    manifest: SnapshotManifest
    folder: Path

    def read(self) -> Iterator[CandidateBatch]:
        """Yield the candidates with the vectors of the snapshot.

        Raises:
            SnapshotError: The snapshot has changed since it was checked.
        """
        with _name_in_errors(self.folder):
            vectors = _open_vectors(self.folder / _VECTORS)
            examples = vectors[:0]
            if _EXAMPLES in self.manifest.files:
                examples = _open_vectors(self.folder / _EXAMPLES)
            candidates = read_stored_candidates(self.folder / _CANDIDATES, self.manifest.size)
            start = 0
            example_start = 0
            while some := list(islice(candidates, BATCH)):
                end = start + len(some)
                example_end = example_start + sum(each.example_count for each in some)
                yield CandidateBatch(
                    some,
                    np.array(vectors[start:end]),
                    np.array(examples[example_start:example_end]),
                )
                start = end
                example_start = example_end

    async def batches(
        self, encoder: PoolEncoder, progress: EncodingProgress | None = None
    ) -> AsyncIterator[CandidateBatch]:
        """Yield the candidates with their vectors by an encoder.

        Args:
            encoder: Encodes the texts again if it is not the one that encoded the snapshot.
            progress: Called with (candidates done, candidates in total).
        """
        done = 0

        def report(encoded: int, _: int) -> None:
            if progress:
                progress(done + encoded, self.manifest.size)

        known = (self.manifest.fingerprint, self.manifest.dimension)
        for batch in self.read():
            if known == (encoder.fingerprint, encoder.dimension):
                yield batch
            else:
                yield await encode_batch(encoder, batch.candidates, report)
            report(len(batch.candidates), 0)
            done += len(batch.candidates)


async def write_snapshot(
    view: PoolView, folder: Path, *, model: str, fingerprint: str
) -> SnapshotManifest:
    """Write a version of a pool to a folder, completely or not at all, and return the manifest.

    Args:
        view: The version.
        folder: A folder that does not exist or is empty.
        model: Name of the model that encoded the pool.
        fingerprint: Fingerprint of that model.

    Raises:
        SnapshotError: The folder is not empty, or cannot be written.
    """
    batch = _join([batch async for batch in view.scan()])
    manifest = SnapshotManifest(
        format=FORMAT,
        pool=view.name,
        version=view.version,
        size=len(batch.candidates),
        **view.settings._asdict(),
        encoder=view.encoder_name,
        model=model,
        fingerprint=fingerprint,
        dimension=batch.vectors.shape[1],
        files={},
    )
    return await asyncio.to_thread(_write, batch, folder, manifest)


def _join(batches: Sequence[CandidateBatch]) -> CandidateBatch:
    if len(batches) == 1:
        return batches[0]
    return CandidateBatch(
        [candidate for batch in batches for candidate in batch.candidates],
        np.concatenate([batch.vectors for batch in batches]),
        np.concatenate([batch.examples for batch in batches]),
    )


def _write(batch: CandidateBatch, folder: Path, manifest: SnapshotManifest) -> SnapshotManifest:
    try:
        if folder.exists() and any(folder.iterdir()):
            raise SnapshotError(f"'{folder}' is not empty")
        with create_folder(folder) as new_folder:
            write_jsonl(new_folder / _CANDIDATES, (each.record() for each in batch.candidates))
            np.save(new_folder / _VECTORS, batch.vectors, allow_pickle=False)
            if len(batch.examples):
                np.save(new_folder / _EXAMPLES, batch.examples, allow_pickle=False)
            files = {path.name: describe_file(path) for path in sorted(new_folder.iterdir())}
            manifest = manifest.model_copy(update={"files": files})
            text = manifest.model_dump_json(indent=2, exclude_none=True) + "\n"
            (new_folder / MANIFEST).write_text(text, encoding="utf-8")
            return manifest
    except OSError as error:
        raise SnapshotError(f"'{folder}' cannot be written: {error}") from error


def read_snapshot(folder: Path, most: int) -> Snapshot:
    """Return the snapshot in a folder, whose candidates have been checked.

    Args:
        folder: The folder.
        most: Greatest number of candidates.

    Raises:
        SnapshotError: It is missing, does not agree with its manifest, or exceeds a limit.
    """
    with _name_in_errors(folder):
        manifest = _check_files(folder)
        _check_candidates(folder, manifest, most)
        return Snapshot(manifest, folder)


def check_snapshot(folder: Path) -> SnapshotManifest:
    """Return the manifest of the snapshot in a folder, whose files agree with it.

    Raises:
        SnapshotError: It is missing, or does not agree with its manifest.
    """
    with _name_in_errors(folder):
        return _check_files(folder)


@contextmanager
def _name_in_errors(folder: Path) -> Iterator[None]:
    """Name the folder in an error about its contents."""
    try:
        yield
    except (OSError, ValueError, OverflowError, DataError, SnapshotError) as error:
        why = f"manifest: {first_error(error)}" if isinstance(error, ValidationError) else error
        raise SnapshotError(f"snapshot '{folder}' cannot be read: {why}") from error


def _check_files(folder: Path) -> SnapshotManifest:
    manifest = SnapshotManifest.model_validate_json(_read_manifest(folder))
    if manifest.format != FORMAT:
        raise SnapshotError(
            f"it has format {manifest.format}, and this release reads format {FORMAT}"
        )
    if set(manifest.files) - {_EXAMPLES} != _FILES:
        raise SnapshotError(f"the manifest describes other files than {' and '.join(_FILES)}")
    for name in manifest.files:
        _check_plain(folder / name)
        if manifest.files[name] != describe_file(folder / name):
            raise SnapshotError(f"{name} is not the file that the manifest describes")
    return manifest


def _check_candidates(folder: Path, manifest: SnapshotManifest, most: int) -> None:
    if manifest.size > most:
        raise SnapshotError(describe_excess(manifest.size, most, "candidates"))
    file = folder / _CANDIDATES
    ids = IdCheck()
    size = Size(0, 0)
    for candidate in read_stored_candidates(file, most):
        ids.add([candidate])
        size = Size(size.candidates + 1, size.examples + candidate.example_count)
    if size.candidates != manifest.size:
        raise SnapshotError(
            f"{_CANDIDATES} holds {write_count(size.candidates, 'candidate')}; its manifest says "
            f"{manifest.size}"
        )
    repeated = ids.find_repeated(each.id for each in read_stored_candidates(file, most))
    if repeated is not None:
        raise SnapshotError(f"{_CANDIDATES}: '{repeated}' is the id of several candidates")
    _check_vectors(folder / _VECTORS, (size.candidates, manifest.dimension))
    if _EXAMPLES in manifest.files:
        _check_vectors(folder / _EXAMPLES, (size.examples, manifest.dimension))
    elif size.examples:
        raise SnapshotError(f"the manifest describes no {_EXAMPLES}")


def _check_vectors(path: Path, shape: tuple[int, int]) -> None:
    vectors = _open_vectors(path)
    if vectors.dtype != np.float16 or vectors.shape != shape:
        raise SnapshotError(
            f"{path.name} holds {vectors.dtype} vectors of shape {vectors.shape}, and not {shape}"
        )
    if not are_unit(vectors):
        raise SnapshotError(f"{path.name} holds vectors that are not of unit length")


def _open_vectors(path: Path) -> Float16:
    """Return the array of a file, which stays on the disk."""
    # Accepts only an array of at most the size of the file: no pickle, no archive.
    try:
        with np.errstate(over="ignore"):  # a shape that overflows is rejected later
            return open_memmap(path, mode="r")
    except (SyntaxError, TokenError):  # of the header, which is a Python literal
        raise SnapshotError(f"{path.name} has a broken header") from None


def _read_manifest(folder: Path) -> bytes:
    path = folder / MANIFEST
    _check_plain(path)
    if path.stat().st_size > _MOST_MANIFEST_BYTES:
        raise SnapshotError(f"{MANIFEST} has more than {_MOST_MANIFEST_BYTES} bytes")
    return path.read_bytes()


def _check_plain(path: Path) -> None:
    """Reject links, which may lead out of the folder, and devices, which may never end."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise SnapshotError(f"{path.name} is not a plain file")


def describe_file(path: Path) -> File:
    """Return the size and the checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return File(bytes=path.stat().st_size, sha256=digest.hexdigest())
