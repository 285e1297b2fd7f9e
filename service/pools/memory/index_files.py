"""Saves trained indexes as files, so that a restarted replica need not train them again.

Each pool and model has a folder with lists of codes as FAISS writes them, a mark of each vector,
and a manifest. The marks say which vectors of a pool are in the lists, so that an index fits any
later version of the pool, in any order.
"""

import logging
import shutil
from contextlib import suppress
from pathlib import Path
from typing import cast

import faiss
import numpy as np
from pydantic import BaseModel, ConfigDict

from turnwise.models.files import create_folder
from turnwise.service.pools.files.snapshot import File, described
from turnwise.service.pools.memory.ivf import IvfIndex, Lists, marks_of
from turnwise.service.pools.redis.values import PoolKey

FORMAT = 1
_MANIFEST, _LISTS, _MARKS = "manifest.json", "lists.faiss", "marks.npy"
_KEPT = 2
"""Models whose indexes are kept: in a rolling update, replicas of two models may share a folder."""

_log = logging.getLogger("turnwise.pools")


class Manifest(BaseModel):
    """The manifest of an index."""

    model_config = ConfigDict(extra="forbid")

    format: int
    fingerprint: str
    """Fingerprint of the model that encoded the vectors."""
    dimension: int
    probes: int
    short_list: int
    recall: float
    """When the lists were trained."""
    files: dict[str, File]


class IndexFiles:
    """A folder of indexes. An error of the file system is logged: a replica can train again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, key: PoolKey, fingerprint: str, index: IvfIndex) -> None:
        """Write the index of a pool, completely or not at all; it replaces an earlier one.

        Those of earlier models are removed, but for the last one.
        """
        folder = self.folder_of(key) / fingerprint
        try:
            with create_folder(folder) as made:
                faiss.write_index(index.codes, str(made / _LISTS))
                np.save(made / _MARKS, marks_of(index.vectors), allow_pickle=False)
                manifest = Manifest(
                    format=FORMAT,
                    fingerprint=fingerprint,
                    dimension=index.dimension,
                    probes=index.probes,
                    short_list=index.short_list,
                    recall=index.trained_recall,
                    files={name: described(made / name) for name in (_LISTS, _MARKS)},
                )
                (made / _MANIFEST).write_text(manifest.model_dump_json(), encoding="utf-8")
                shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # another replica may be removing them
                for old in _newest_first(folder.parent)[_KEPT:]:
                    shutil.rmtree(old, ignore_errors=True)
        except (OSError, RuntimeError) as error:
            _log.warning("pools: the index of pool %s is not kept: %s", key, error)

    def read(self, key: PoolKey, fingerprint: str) -> Lists | None:
        """Return the lists of a pool; None if there are none, or if they are damaged."""
        folder = self.folder_of(key) / fingerprint
        if not (folder / _MANIFEST).exists():
            return None
        try:
            manifest = Manifest.model_validate_json((folder / _MANIFEST).read_bytes())
            if (manifest.format, manifest.fingerprint) != (FORMAT, fingerprint):
                raise ValueError("it has another format or is of another model")  # noqa: TRY301
            for name in (_LISTS, _MARKS):
                if manifest.files.get(name) != described(folder / name):
                    raise ValueError(f"{name} is not the file that the manifest describes")  # noqa: TRY301
            return Lists(
                cast(faiss.IndexIVFPQFastScan, faiss.read_index(str(folder / _LISTS))),
                np.load(folder / _MARKS, allow_pickle=False),
                probes=manifest.probes,
                short_list=manifest.short_list,
                recall=manifest.recall,
            )
        except (OSError, ValueError, RuntimeError) as error:
            _log.warning("pools: the kept index of pool %s cannot be used: %s", key, error)
            return None

    def remove(self, key: PoolKey) -> None:
        """Remove the indexes of a pool."""
        shutil.rmtree(self.folder_of(key), ignore_errors=True)

    def folder_of(self, key: PoolKey) -> Path:
        """Return the folder of a pool's indexes, one for each fingerprint."""
        return self._folder / key.namespace / key.name


def _newest_first(folder: Path) -> list[Path]:
    written = [manifest.parent for manifest in folder.glob(f"[!.]*/{_MANIFEST}")]
    return sorted(written, key=lambda index: index.stat().st_mtime, reverse=True)
