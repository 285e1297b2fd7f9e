"""The files of a project: those of a folder, those of a zip archive, or one file."""

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from turnwise.models.errors import DataError

_MOST_FILES = 10_000
_MOST_BYTES = 32 << 20
"""Bytes of a file, decompressed."""
_MOST_ZIPPED = 256 << 20
"""Bytes of all files of an archive, decompressed; one that states fewer is cut off."""
_ENDINGS = {".yml", ".yaml", ".json", ".tsv", ".md", ".co"}
_OTHERS = {"node_modules", "venv", "__pycache__"}
"""Folders that are no part of a project."""


class _Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """Loads strings, lists and dictionaries, and null."""


_NULL = "tag:yaml.org,2002:null"
_Loader.add_implicit_resolver(_NULL, re.compile("(~|null|Null|NULL)$"), ["~", "n", "N"])
_Loader.add_constructor(_NULL, lambda _loader, _node: None)


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """The files of a project that may hold its conversations.

    Every method raises DataError, which names the file and, if it is known, the line.

    Attributes:
        place: The project, as errors name it.
        names: The paths of the files within the project, sorted.
        read: Returns the content of a file.
    """

    place: str
    names: list[str]
    read: Callable[[str], bytes]

    def ending_with(self, *endings: str) -> list[str]:
        """Return the names of the files that have one of these endings."""
        return [name for name in self.names if name.lower().endswith(endings)]

    def text(self, name: str) -> str:
        """Return the text of a file."""
        content = self.read(name)
        if len(content) > _MOST_BYTES:
            raise self.error(f"more than {_MOST_BYTES} bytes", name)
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise self.error("not UTF-8", name) from None

    def json(self, name: str) -> Any:  # noqa: ANN401 - whatever the JSON holds
        """Return the value of a JSON file."""
        try:
            return json.loads(self.text(name))
        except json.JSONDecodeError as error:
            raise self.error(f"not JSON: {error.msg}", name, error.lineno) from None
        except (ValueError, RecursionError) as error:
            raise self.error(f"not JSON: {error}", name) from None

    def yaml(self, name: str) -> Any:  # noqa: ANN401 - whatever the YAML holds
        """Return the value of a YAML file, of strings, lists, dictionaries and null."""
        try:
            return _load_yaml(self.text(name))
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else None
            raise self.error(f"not YAML: {error.problem}", name, line) from None
        except (yaml.YAMLError, RecursionError) as error:
            raise self.error(f"not YAML: {error}", name) from None

    def error(self, what: str, name: str, line: int | None = None) -> DataError:
        """Return an error about a file."""
        return DataError(what, f"{self.place}, {name}", line)


def _load_yaml(text: str) -> Any:  # noqa: ANN401 - whatever the YAML holds
    """Return strings, lists, dictionaries and null; `no` is a text, and nothing becomes an object.

    Aliases are rejected: with them a few lines can hold more than any memory does.
    """
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            problem = "aliases are not read"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
    return yaml.load(text, _Loader)  # noqa: S506 - it constructs no objects


@contextmanager
def open_project(path: Path) -> Iterator[ProjectFiles]:
    """Yield the files of a folder, of a zip archive, or one file.

    Raises:
        DataError: It cannot be read, is too large, or a path leads out of it.
    """
    place = str(path)
    try:
        path.stat()  # `is_dir` and `is_zipfile` know no errors
        if path.is_dir():
            yield _check(place, _list_folder(path), lambda name: _read_file(path / name))
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if sum(member.file_size for member in archive.infolist()) > _MOST_ZIPPED:
                    raise DataError(f"more than {_MOST_ZIPPED} bytes, decompressed", place)
                yield _check(place, archive.namelist(), lambda name: _read_member(archive, name))
        else:
            yield ProjectFiles(place, [path.name], lambda name: _read_file(path.parent / name))
    except OSError as error:
        raise DataError(error.strerror or str(error), place) from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:  # encrypted
        raise DataError(f"the archive cannot be read: {error}", place) from error


def _check(place: str, names: list[str], read: Callable[[str], bytes]) -> ProjectFiles:
    """Return the files of a project; raise DataError if one is outside, or there are too many."""
    for name in names:
        if name.startswith(("/", "\\")) or ".." in PurePosixPath(name.replace("\\", "/")).parts:
            raise DataError(f"'{name}' leads out of the project", place)
    kept = sorted(name for name in names if PurePosixPath(name).suffix.lower() in _ENDINGS)
    if len(kept) > _MOST_FILES:
        raise DataError(f"more than {_MOST_FILES} files", place)
    return ProjectFiles(place, kept, read)


def _list_folder(folder: Path) -> list[str]:
    inside = folder.resolve()
    names = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        is_hidden = any(part.startswith(".") or part in _OTHERS for part in name.parts)
        if is_hidden or not path.is_file():
            continue
        if not path.resolve().is_relative_to(inside):
            raise DataError(f"'{name}' leads out of the project", str(folder))
        names.append(name.as_posix())
    return names


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES + 1)


def _read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as file:
        return file.read(_MOST_BYTES + 1)
