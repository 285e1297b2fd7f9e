"""Saves approximate indexes as files, so that a restarted replica need not train them again.

Each pool and model has a folder with the lists of codes as FAISS writes them, and a manifest; the
index over examples has one of its own. An index is read only for the vectors that it was built
from: the manifest has their digest.
"""

import hashlib
import logging
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

import faiss
import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from turnwise.models.files import create_folder
from turnwise.service.pools.encoding import Kind
from turnwise.service.pools.files.snapshot import File, describe_file
from turnwise.service.pools.memory.flat import FlatIndex, Float16
from turnwise.service.pools.memory.ivf import IvfIndex
from turnwise.service.pools.redis.values import PoolKey

_MANIFEST = "manifest.json"
_LISTS = "lists.faiss"
_KEPT = 2
"""Models whose indexes are kept: in a rolling update, replicas of two models may share a folder."""


_log = logging.getLogger("turnwise.pools")


class IndexManifest(BaseModel):
    """The manifest of an index."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[2] = 2
    vectors: str
    """Digest of the vectors (n, d) in their order."""
    probes: int
    short_list: int
    recall: float | None
    lists: File


class IndexFiles:
    """A folder of indexes. An error of the file system is logged: a replica can train again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(
        self, key: PoolKey, fingerprint: str, index: IvfIndex, kind: Kind = "candidates"
    ) -> None:
        """Write the index of a pool, completely or not at all; it replaces an earlier one.

        The indexes of earlier models are removed, except those of the last one.
        """
        folder = self.folder_of(key, kind) / fingerprint
        try:
            with create_folder(folder) as new_folder:
                faiss.write_index(index.codes, str(new_folder / _LISTS))
                manifest = IndexManifest(
                    vectors=_digest(index.vectors),
                    probes=index.probes,
                    short_list=index.short_list,
                    recall=index.recall,
                    lists=describe_file(new_folder / _LISTS),
                )
                (new_folder / _MANIFEST).write_text(manifest.model_dump_json(), encoding="utf-8")
                shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another replica may be removing them
                for old in _list_newest_first(folder.parent)[_KEPT:]:
                    shutil.rmtree(old, ignore_errors=True)
        except (OSError, RuntimeError) as error:
            _log.warning("pools: the index of pool %s is not kept: %s", key, error)

    def read(
        self, key: PoolKey, fingerprint: str, flat: FlatIndex, kind: Kind = "candidates"
    ) -> IvfIndex | None:
        """Return the saved index of exactly these vectors.

        Returns None if the saved index is of other vectors, is damaged, or does not exist.
        """
        folder = self.folder_of(key, kind) / fingerprint
        if not (folder / _MANIFEST).exists():
            return None
        try:
            manifest = IndexManifest.model_validate_json((folder / _MANIFEST).read_bytes())
            if manifest.vectors != _digest(flat.vectors):
                return None
            if manifest.lists != describe_file(folder / _LISTS):
                raise ValueError(f"{_LISTS} is not the file that the manifest describes")  # noqa: TRY301
            return IvfIndex(
                flat,
                cast(faiss.IndexIVFPQFastScan, faiss.read_index(str(folder / _LISTS))),
                probes=manifest.probes,
                short_list=manifest.short_list,
                recall=manifest.recall,
            )
        except ValidationError:
            _log.warning("pools: the kept index of pool %s is of another release", key)
        except (OSError, ValueError, RuntimeError) as error:
            _log.warning("pools: the kept index of pool %s cannot be used: %s", key, error)
        return None

    def remove(self, key: PoolKey) -> None:
        """Remove all indexes of a pool."""
        shutil.rmtree(self.folder_of(key), ignore_errors=True)

    def folder_of(self, key: PoolKey, kind: Kind = "candidates") -> Path:
        """Return the folder of a pool's indexes, which has one for each fingerprint."""
        folder = self._folder / key.namespace / key.name
        return folder / kind if kind == "examples" else folder


def _digest(vectors: Float16) -> str:
    """Return a digest of the vectors (n, d), and of d."""
    digest = hashlib.blake2b(f"{vectors.shape[1]} ".encode(), digest_size=32)
    digest.update(np.ascontiguousarray(vectors).data)
    return digest.hexdigest()


def _list_newest_first(folder: Path) -> list[Path]:
    written = [manifest.parent for manifest in folder.glob(f"[!.]*/{_MANIFEST}")]
    return sorted(written, key=lambda index: index.stat().st_mtime, reverse=True)
