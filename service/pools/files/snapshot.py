"""Snapshots of pools: a folder of candidates (JSON Lines), vectors (.npy) and a manifest."""

import asyncio
import hashlib
import stat
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from turnwise.models.data import write_jsonl
from turnwise.models.errors import TurnwiseError, first_error
from turnwise.models.files import create_folder
from turnwise.service.pools.candidate import Candidate, read_candidates
from turnwise.service.pools.encoding import PoolEncoder, Progress, encode_candidates
from turnwise.service.pools.memory.flat import Float16, are_unit
from turnwise.service.pools.view import Batch, PoolView
from turnwise.service.wire.fields import EncoderName, Name, Share
from turnwise.service.wire.pools import PoolCalibration

FORMAT = 1
_MANIFEST = "manifest.json"
_CANDIDATES = "candidates.jsonl"
_VECTORS = "vectors.npy"
_FILES = (_CANDIDATES, _VECTORS)
_BLOCK = 1 << 20
_MOST_MANIFEST_BYTES = 65_536


class SnapshotError(TurnwiseError):
    """A snapshot is incomplete or damaged, or cannot be written."""


class File(BaseModel):
    """A file of a snapshot."""

    model_config = ConfigDict(extra="forbid")

    bytes: NonNegativeInt
    sha256: str


class Manifest(BaseModel):
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
    encoder: EncoderName = "default"
    model: str
    fingerprint: str
    """Fingerprint of the model that encoded the vectors."""
    dimension: PositiveInt
    files: dict[str, File]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A complete snapshot that agrees with its manifest."""

    manifest: Manifest
    candidates: list[Candidate]
    vectors: Float16
    """(n, d)."""

    async def batches(
        self, encoder: PoolEncoder, progress: Progress | None = None
    ) -> AsyncIterator[Batch]:
        """Yield the candidates with their vectors by an encoder.

        Args:
            encoder: Encodes the texts again if it is not the one that encoded the snapshot.
            progress: Called with (texts encoded, texts in total).
        """
        known = (self.manifest.fingerprint, self.manifest.dimension)
        if known == (encoder.fingerprint, encoder.dimension):
            yield Batch(self.candidates, self.vectors, self.vectors[:0])
            return
        texts = [candidate.text for candidate in self.candidates]
        vectors = await encode_candidates(encoder, texts, progress)
        yield Batch(self.candidates, vectors, vectors[:0])


async def write_snapshot(view: PoolView, folder: Path, *, model: str, fingerprint: str) -> Manifest:
    """Write a version of a pool to a folder, completely or not at all, and return the manifest.

    Args:
        view: The version.
        folder: A folder that does not exist or is empty.
        model: Name of the model that encoded the pool.
        fingerprint: Fingerprint of that model.

    Raises:
        SnapshotError: The folder is not empty, or cannot be written.
    """
    batches = [batch async for batch in view.scan()]
    candidates = [candidate for batch in batches for candidate in batch.candidates]
    parts = [batch.vectors for batch in batches]
    vectors = parts[0] if len(parts) == 1 else np.concatenate(parts)
    manifest = Manifest(
        format=FORMAT,
        pool=view.name,
        version=view.version,
        size=len(candidates),
        **view.settings._asdict(),
        encoder=view.encoder_name,
        model=model,
        fingerprint=fingerprint,
        dimension=vectors.shape[1],
        files={},
    )
    return await asyncio.to_thread(_write, candidates, vectors, folder, manifest)


def _write(
    candidates: Sequence[Candidate], vectors: Float16, folder: Path, manifest: Manifest
) -> Manifest:
    try:
        if folder.exists() and any(folder.iterdir()):
            raise SnapshotError(f"'{folder}' is not empty")
        with create_folder(folder) as made:
            write_jsonl(made / _CANDIDATES, (each.record() for each in candidates))
            np.save(made / _VECTORS, vectors, allow_pickle=False)
            files = {name: described(made / name) for name in _FILES}
            manifest = manifest.model_copy(update={"files": files})
            text = manifest.model_dump_json(indent=2, exclude_none=True) + "\n"
            (made / _MANIFEST).write_text(text, encoding="utf-8")
            return manifest
    except OSError as error:
        raise SnapshotError(f"'{folder}' cannot be written: {error}") from error


def read_snapshot(folder: Path) -> Snapshot:
    """Return the snapshot in a folder.

    Raises:
        SnapshotError: It is missing, or does not agree with its manifest.
    """
    try:
        manifest = Manifest.model_validate_json(_read_manifest(folder))
        _check_files(folder, manifest)
        # Accepts only an array of at most the size of the file: no pickle, no archive.
        with np.errstate(over="ignore"):  # a shape that overflows is rejected next
            vectors = open_memmap(folder / _VECTORS, mode="r")
        candidates = read_candidates(folder / _CANDIDATES)
    except (OSError, ValueError, OverflowError, TurnwiseError) as error:
        why = f"manifest: {first_error(error)}" if isinstance(error, ValidationError) else error
        raise SnapshotError(f"'{folder}' holds no complete snapshot: {why}") from error
    expected = (manifest.size, manifest.dimension)
    if vectors.dtype != np.float16 or vectors.shape != expected or len(candidates) != expected[0]:
        raise SnapshotError(
            f"'{folder}' holds {len(candidates)} candidates and {vectors.dtype} vectors of shape "
            f"{vectors.shape}; its manifest says {manifest.size} and {expected}"
        )
    if not are_unit(vectors):
        raise SnapshotError(f"'{folder}' holds vectors that are not of unit length")
    return Snapshot(manifest, candidates, np.array(vectors))


def _check_files(folder: Path, manifest: Manifest) -> None:
    if manifest.format != FORMAT:
        raise SnapshotError(f"format {manifest.format} is not {FORMAT}")
    if set(manifest.files) != set(_FILES):
        raise SnapshotError(f"the manifest describes other files than {' and '.join(_FILES)}")
    for name in _FILES:
        _check_plain(folder / name)
        if manifest.files[name] != described(folder / name):
            raise SnapshotError(f"{name} is not the file that the manifest describes")


def _read_manifest(folder: Path) -> bytes:
    path = folder / _MANIFEST
    _check_plain(path)
    if path.stat().st_size > _MOST_MANIFEST_BYTES:
        raise SnapshotError(f"{_MANIFEST} has more than {_MOST_MANIFEST_BYTES} bytes")
    return path.read_bytes()


def _check_plain(path: Path) -> None:
    """Reject links, which may lead out of the folder, and devices, which may never end."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise SnapshotError(f"{path.name} is not a plain file")


def described(path: Path) -> File:
    """Return the size and the checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return File(bytes=path.stat().st_size, sha256=digest.hexdigest())
