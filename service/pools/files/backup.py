"""Backups: a folder with a snapshot of every pool, the aliases, and a manifest with checksums.

    FOLDER/backup.json              the manifest, which is written last
    FOLDER/pools/NAMESPACE/NAME     the snapshot of a pool
    FOLDER/unfinished.jsonl         the snapshots that an unfinished backup has

The manifest has the checksum of each snapshot's manifest, and that has those of its files. So a
folder in which anything is missing or different is not a backup.
"""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from turnwise.models.errors import TurnwiseError, first_error
from turnwise.models.files import remove_leftovers, replace_file
from turnwise.models.texts import write_count
from turnwise.service.pools.files.snapshot import (
    MANIFEST,
    SnapshotManifest,
    check_snapshot,
    describe_file,
)
from turnwise.service.pools.redis.values import PoolKey, Revision
from turnwise.service.wire.fields import Name, StoreName

FORMAT = 1
_MANIFEST = "backup.json"
_UNFINISHED = "unfinished.jsonl"
_POOLS = "pools"


class BackupError(TurnwiseError):
    """A folder holds no complete backup, or none can be written to it."""


class SavedPool(BaseModel):
    """A pool in a backup."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Name
    name: Name
    store: StoreName
    stamp: str
    """Stamp of the version that the snapshot holds."""
    sha256: str
    """Checksum of the snapshot's manifest."""

    @property
    def key(self) -> PoolKey:
        """The namespace and the name."""
        return PoolKey(self.namespace, self.name)


class SavedAlias(BaseModel):
    """An alias in a backup."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Name
    name: Name
    pool: Name

    @classmethod
    def of(cls, alias: PoolKey, pool: PoolKey) -> Self:
        """Return an alias, which is in the namespace of its pool."""
        return cls(namespace=alias.namespace, name=alias.name, pool=pool.name)


class BackupManifest(BaseModel):
    """The manifest of a backup."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    created_at: AwareDatetime
    pools: tuple[SavedPool, ...]
    aliases: tuple[SavedAlias, ...]
    unsaved: dict[str, str] = Field(default_factory=dict)
    """The pools and aliases that could not be saved, and why."""

    @property
    def summary(self) -> str:
        """The numbers of its pools and aliases, such as "2 pools and 1 alias"."""
        pools = write_count(len(self.pools), "pool")
        aliases = write_count(len(self.aliases), "alias", "aliases")
        return f"{pools} and {aliases}"


class BackupFolder:
    """A folder to which a backup is written; methods raise OSError if it cannot be written.

    Attributes:
        saved: The pools that are saved.
    """

    def __init__(self, folder: Path) -> None:
        """Begin a backup, or go on with one that was interrupted.

        Raises:
            BackupError: The folder holds a complete backup, or something else.
        """
        if (folder / _MANIFEST).exists():
            raise BackupError(f"'{folder}' holds a complete backup: name another folder")
        if folder.exists() and any(folder.iterdir()) and not (folder / _UNFINISHED).exists():
            raise BackupError(f"'{folder}' is not empty")
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.saved = self._read_unfinished()

    def clear_folder(self, key: PoolKey) -> Path:
        """Remove what is left of an earlier snapshot of a pool; return the folder for a new one."""
        path = _path_of(self._folder, key)
        shutil.rmtree(path, ignore_errors=True)
        remove_leftovers(path.parent, path.name)
        return path

    def has(self, key: PoolKey, revision: Revision) -> bool:
        """Return whether this version of a pool is saved, with these settings."""
        saved = self.saved.get(key)
        if saved is None or saved.stamp != revision.stamp:
            return False
        manifest = (_path_of(self._folder, key) / MANIFEST).read_bytes()
        return SnapshotManifest.model_validate_json(manifest).settings == revision.settings

    def add(self, key: PoolKey, revision: Revision) -> None:
        """Note that the snapshot of a pool is written, with the revision that it holds."""
        manifest = _path_of(self._folder, key) / MANIFEST
        saved = SavedPool(
            namespace=key.namespace,
            name=key.name,
            store=revision.store_name,
            stamp=revision.stamp,
            sha256=describe_file(manifest).sha256,
        )
        with (self._folder / _UNFINISHED).open("a", encoding="utf-8") as file:
            file.write(f"{saved.model_dump_json()}\n")
        self.saved[key] = saved

    def finish(
        self, aliases: Mapping[PoolKey, PoolKey], unsaved: Mapping[PoolKey, str]
    ) -> BackupManifest:
        """Write the manifest, and return it.

        Args:
            aliases: The pool of each alias.
            unsaved: The pools and aliases that could not be saved, and why.
        """
        manifest = BackupManifest(
            format=FORMAT,
            created_at=datetime.now(UTC),
            pools=tuple(self.saved[key] for key in sorted(self.saved)),
            aliases=tuple(
                SavedAlias.of(alias, pool)
                for alias, pool in sorted(aliases.items())
                if pool in self.saved
            ),
            unsaved={str(key): unsaved[key] for key in sorted(unsaved)},
        )
        with replace_file(self._folder / _MANIFEST) as path:
            path.write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        (self._folder / _UNFINISHED).unlink()
        return manifest

    def forget(self, key: PoolKey) -> None:
        """Remove the snapshot of a pool that was deleted during the backup."""
        self.saved.pop(key, None)
        shutil.rmtree(_path_of(self._folder, key), ignore_errors=True)

    def _read_unfinished(self) -> dict[PoolKey, SavedPool]:
        """Return the pools that are saved; the last line may be cut off."""
        path = self._folder / _UNFINISHED
        path.touch()
        saved: dict[PoolKey, SavedPool] = {}
        whole, newline, _ = path.read_text(encoding="utf-8").rpartition("\n")
        path.write_text(whole + newline, encoding="utf-8")
        for line in whole.splitlines():
            pool = SavedPool.model_validate_json(line)
            saved[pool.key] = pool
        return saved


class Backup:
    """A complete backup: its files have the checksums that were written with them.

    Attributes:
        manifest: Its manifest.
        snapshots: The manifest of each pool's snapshot.
    """

    def __init__(self, folder: Path) -> None:
        """Read the manifests, and check every file.

        Raises:
            BackupError: The backup is not complete, or a file is missing or differs.
        """
        self._folder = folder
        try:
            self.manifest = self._read_manifest()
            self.snapshots = {pool.key: self._check_pool(pool) for pool in self.manifest.pools}
        except (OSError, ValueError, TurnwiseError) as error:
            why = str(error)
            if isinstance(error, ValidationError):
                why = f"{_MANIFEST}: {first_error(error)}"
            raise BackupError(f"'{folder}' holds no complete backup: {why}") from error

    def path_of(self, key: PoolKey) -> Path:
        """Return the folder of a pool's snapshot."""
        return _path_of(self._folder, key)

    def _read_manifest(self) -> BackupManifest:
        if (self._folder / _UNFINISHED).exists():
            raise BackupError("it was interrupted; `turnwise backup` continues it")
        manifest = BackupManifest.model_validate_json((self._folder / _MANIFEST).read_bytes())
        if manifest.format != FORMAT:
            raise BackupError(
                f"it has format {manifest.format}, and this release reads format {FORMAT}"
            )
        return manifest

    def _check_pool(self, pool: SavedPool) -> SnapshotManifest:
        path = self.path_of(pool.key)
        if describe_file(path / MANIFEST).sha256 != pool.sha256:
            raise BackupError(f"the manifest of pool {pool.key} is not the one that was written")
        return check_snapshot(path)


def _path_of(folder: Path, key: PoolKey) -> Path:
    return folder / _POOLS / key.namespace / key.name
