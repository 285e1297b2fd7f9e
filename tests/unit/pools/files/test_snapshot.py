import io
import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.pools.conftest import StartReplica, unit_vectors
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import (
    Candidate,
    SnapshotError,
    SnapshotManifest,
    read_snapshot,
    write_snapshot,
)
from turnwise.service.pools.candidate import Learned
from turnwise.service.pools.files import snapshot
from turnwise.service.pools.files.snapshot import describe_file
from turnwise.service.pools.memory.contents import Contents
from turnwise.service.pools.memory.edits import Edit
from turnwise.service.pools.memory.examples import Examples
from turnwise.service.pools.memory.flat import FlatIndex
from turnwise.service.pools.memory.local_view import LocalView
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.wire.pools import PoolSettings

pytestmark = pytest.mark.anyio

CANDIDATES = [Candidate.of("One.", "a", {"tag": ["ü", None]}), Candidate("b", "Two.\nLines.")]


WITH_EXAMPLES = [
    Candidate.of("Nine.", "a", examples=["When?", "Hours?"], group="hours"),
    Candidate.of("Bye.", "b", learned=[Learned("see you", 1764250000.5)], body="# Bye\n"),
]


def edit(candidates: list[Candidate], examples: int) -> Edit:
    """An edit of candidates that have so many examples together."""
    vectors = unit_vectors(len(candidates), 32).astype(np.float16)
    heard = unit_vectors(examples, 32, seed=1).astype(np.float16)
    return Edit(candidates, vectors, examples=Examples.of(candidates, heard))


@pytest.fixture(scope="module")
def view() -> Iterator[LocalView]:
    workers = Workers(1, Metrics())
    contents = Contents.empty(32).after([edit(CANDIDATES, 0)], FlatIndex)
    yield LocalView("p", 1, "default", PoolSettings(), contents, workers, Metrics())
    workers.close()


@pytest.fixture(scope="module")
def view_of_examples(view: LocalView) -> LocalView:
    return replace(view, contents=Contents.empty(32).after([edit(WITH_EXAMPLES, 3)], FlatIndex))


async def written(view: LocalView, folder: Path) -> SnapshotManifest:
    return await write_snapshot(view, folder, model="tiny", fingerprint="tiny")


async def test_a_snapshot_comes_back_as_it_was(view: LocalView, tmp_path: Path) -> None:
    manifest = await written(view, tmp_path / "s")
    read = read_snapshot(tmp_path / "s", 10)
    assert read.manifest == manifest
    assert (manifest.pool, manifest.version, manifest.size, manifest.dimension) == ("p", 1, 2, 32)
    (batch,) = read.read()
    assert batch.candidates == CANDIDATES
    assert batch.vectors.tobytes() == view.contents.vectors().tobytes()
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    assert [*manifest.files] == ["candidates.jsonl", "vectors.npy"]
    assert "examples" not in (tmp_path / "s" / "candidates.jsonl").read_text()


async def test_an_empty_pool_can_be_written(view: LocalView, tmp_path: Path) -> None:
    await written(replace(view, contents=Contents.empty(32)), tmp_path / "s")
    assert not [*read_snapshot(tmp_path / "s", 10).read()]


async def test_a_snapshot_is_read_in_batches(
    view_of_examples: LocalView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "BATCH", 1)
    await written(view_of_examples, tmp_path / "s")
    first, second = read_snapshot(tmp_path / "s", 10).read()
    assert [*first.candidates, *second.candidates] == WITH_EXAMPLES
    assert (len(first.examples), len(second.examples)) == (2, 1)
    examples = view_of_examples.contents.examples()
    assert examples
    read = np.concatenate([first.examples, second.examples])
    assert read.tobytes() == examples.vectors.tobytes()


async def test_vectors_of_another_model_are_encoded_again(
    start: StartReplica, view: LocalView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "BATCH", 1)
    await written(view, tmp_path / "s")
    other = await start(fingerprint="other")
    await other.create()
    steps: list[tuple[int, int]] = []
    batches = partial(
        read_snapshot(tmp_path / "s", 10).batches, progress=lambda *step: steps.append(step)
    )
    await other.pools.replace("n", "p", batches)
    assert set(other.encoder.candidates) >= {"One.", "Two.\nLines."}
    assert steps[-1] == (2, 2)
    assert steps == sorted(steps)


async def test_a_folder_that_is_not_empty_is_left_alone(view: LocalView, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(SnapshotError, match="not empty"):
        await written(view, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


async def test_a_failed_write_leaves_nothing(
    view: LocalView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(SnapshotError, match="No space left"):
        await written(view, tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def change_manifest(**fields: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return change


def append(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with (folder / name).open("ab") as file:
            file.write(b"\n")

    return change


def redescribed(folder: Path) -> dict[str, Any]:
    paths = [path for path in sorted(folder.iterdir()) if path.name != "manifest.json"]
    return {path.name: describe_file(path).model_dump() for path in paths}


def put(name: str, content: Callable[[Path], bytes]) -> Callable[[Path], None]:
    """Replace a file, and describe it in the manifest."""

    def change(folder: Path) -> None:
        (folder / name).write_bytes(content(folder))
        change_manifest(files=redescribed(folder))(folder)

    return change


def array(change: Callable[[Any], Any], name: str = "vectors.npy") -> Callable[[Path], None]:
    def saved(folder: Path) -> bytes:
        file = io.BytesIO()
        np.save(file, change(np.load(folder / name)))
        return file.getvalue()

    return put(name, saved)


def claiming(shape: tuple[int, ...]) -> Callable[[Path], None]:
    """An array whose header claims a shape but has no data."""

    def claimed(_: Path) -> bytes:
        file = io.BytesIO()
        fields = {"descr": "<f2", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, fields)
        return file.getvalue()

    return put("vectors.npy", claimed)


def broken_header(folder: Path, header: bytes) -> bytes:
    whole = (folder / "vectors.npy").read_bytes()
    return whole[:10] + header.ljust(118) + whole[128:]


def archive(_: Path) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, vectors=np.zeros((2, 32), np.float16))
    return file.getvalue()


def lines(*candidates: str) -> Callable[[Path], None]:
    return put("candidates.jsonl", lambda _: "\n".join(candidates).encode())


def link(name: str, target: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).rename(folder / "moved")
        (folder / name).symlink_to(target)

    return change


class Trap:
    """Creates a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("sprung"),)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json"),
        (lambda folder: (folder / "vectors.npy").unlink(), "vectors.npy"),
        (append("candidates.jsonl"), "candidates.jsonl is not the file"),
        (append("vectors.npy"), "vectors.npy is not the file"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest"),
        (change_manifest(format=2), "it has format 2, and this release reads format 1"),
        (change_manifest(size=3), "manifest says 3"),
        (change_manifest(size=11), "11 candidates are more than the limit of 10"),
        (change_manifest(dimension=16), r"\(2, 16\)"),
        (change_manifest(pool="../p"), "manifest: pool"),
        (change_manifest(files={"../p": {"bytes": 0, "sha256": ""}}), "other files than"),
        (change_manifest(more="x" * 100_000), "manifest.json has more than"),
        (lambda folder: (folder / "manifest.json").write_text("[" * 60_000), "manifest"),
        (link("manifest.json", "moved"), "manifest.json is not a plain file"),
        (link("vectors.npy", "/dev/zero"), "vectors.npy is not a plain file"),
        (array(lambda vectors: vectors[:1]), r"shape \(1, 32\)"),
        (array(lambda vectors: vectors.astype(np.float32)), "float32 vectors"),
        (array(lambda vectors: vectors * np.nan), "not of unit length"),
        (array(lambda vectors: vectors * 100), "not of unit length"),
        (put("vectors.npy", lambda _: pickle.dumps(Trap())), "magic string"),
        (put("vectors.npy", archive), "magic string"),
        (put("vectors.npy", lambda folder: (folder / "vectors.npy").read_bytes()[:-8]), "mmap"),
        (array(lambda _: np.array([{"a": 1}, {}], object)), "Python objects"),
        (claiming((1 << 62, 1 << 62)), "cannot be read"),
        (claiming((-1, 32)), "cannot be read"),
        (put("vectors.npy", lambda folder: broken_header(folder, b"(")), "broken header"),
        (put("vectors.npy", lambda folder: broken_header(folder, b"{'descr': 007}")), "cannot be"),
        (
            lines('{"id": "a", "text": "One."}', '{"id": "a", "text": "Two."}'),
            "candidates.jsonl: 'a' is the id",
        ),
        (lines('{"id": "a", "text": "One."}'), "holds 1 candidate;"),
        (lines(json.dumps({"text": "x" * 2001})), "2001 characters are more than the limit of"),
        (lines('{"text": "\\ud800"}'), "not a candidate"),
        (lines('{"text": "a", "metadata": {"k": NaN}}'), "not a candidate"),
        (lines("[" * 100_000), "not JSON"),
    ],
)
async def test_damaged_snapshots_are_rejected(
    view: LocalView,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
    message: str,
) -> None:
    folder = tmp_path / "s"
    await written(view, folder)
    damage(folder)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SnapshotError, match=message):
        read_snapshot(folder, 10)
    assert not Path("sprung").exists()


def without_examples(folder: Path) -> None:
    (folder / "examples.npy").unlink()
    change_manifest(files=redescribed(folder))(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_examples, "describes no examples.npy"),
        (append("examples.npy"), "examples.npy is not the file"),
        (array(lambda vectors: vectors[:2], "examples.npy"), r"shape \(2, 32\), and not \(3, 32\)"),
        (array(lambda vectors: vectors * 2, "examples.npy"), "not of unit length"),
        (lines('{"id": "a", "text": "x"}', '{"id": "b", "text": "x"}'), r"and not \(0, 32\)"),
        (
            lines('{"id": "a", "text": "x"}', '{"id": "b", "text": "x", "learned": [{"text": 1}]}'),
            'line 2, field "learned": not a candidate',
        ),
        (lines('{"text": "x", "learned": [{"text": "a", "at": NaN}]}'), "finite number"),
    ],
)
async def test_snapshots_with_damaged_examples_are_rejected(
    view_of_examples: LocalView, tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    await written(view_of_examples, tmp_path / "s")
    damage(tmp_path / "s")
    with pytest.raises(SnapshotError, match=message):
        read_snapshot(tmp_path / "s", 10)
