"""`turnwise pool encode` and `turnwise pool import`, with a service that then has the pool."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.service.conftest import Command
from tests.support.messages import REPLIES
from tests.support.service import Live, Turnwise
from tests.support.waiting import eventually
from turnwise.models.roles import EncoderKind, Role
from turnwise.service.pools import encoding
from turnwise.service.pools.files import catalogue

PARTS = 3


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue of the candidates of the pool `default`, in three parts."""
    monkeypatch.setattr(catalogue, "PART", 3)
    lines = [json.dumps({"id": f"r{n}", "text": text}) for n, text in enumerate(REPLIES)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    return tmp_path / "a.jsonl"


def written(folder: Path) -> dict[str, int]:
    """The parts in a folder, and when each was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}


def test_what_was_encoded_in_bulk_answers_as_an_upload_does(
    live: Live, file: Path, tmp_path: Path, command: Command
) -> None:
    said = command("encode", file, "--out", tmp_path / "out")
    assert f"{len(REPLIES)} candidates encoded now, {PARTS} of {PARTS} parts there" in said
    table = parquet.read_table(tmp_path / "out" / "part-000000000003-000000000006.parquet")
    assert table.schema.field("vector").type == pa.list_(pa.field("element", pa.float16()), 32)
    assert table.schema.metadata[b"turnwise.fingerprint"].decode() == live.encoder.fingerprint
    vectors = np.array(table["vector"].to_pylist(), np.float32)
    texts = table["text"].to_pylist()
    assert vectors == pytest.approx(live.encoder.encode(texts, Role.AFTER), abs=2e-4)

    encoded = live.increase("turnwise_encoded_texts_total", role="after", lane="bulk")
    said = command("import", tmp_path / "out", "--pool", "bulk")
    assert f"pool bulk: version 1, {len(REPLIES)} candidates" in said
    eventually(lambda: live.http.get("/pools/bulk").is_success)
    eventually(lambda: live.get("/pools/bulk")["size"] == len(REPLIES))
    search = {"text": "Where is my parcel?", "top_k": 8}
    ours = live.post("/pools/bulk/search", **search)["candidates"]
    assert ours == live.post("/pools/default/search", **search)["candidates"]
    assert encoded() == 0


def test_an_interrupted_encoding_goes_on_where_it_was(
    file: Path,
    command: Command,
    refused: Command,
    pool_command: Turnwise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode = encoding.encode_batch
    folder = file.parent / "out"

    async def failing(*args: object) -> object:
        if len(written(folder)) == 2:
            raise KeyboardInterrupt
        return await encode(*args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("turnwise.service.cli.pool.bulk.encode_batch", failing)
        assert pool_command("encode", file, "--out", folder).status
    before = written(folder)
    assert len(before) == 2
    line = refused("import", folder, "--pool", "bulk")
    missing = "part-000000000006-000000000008.parquet"
    assert f"lacks 1 of {PARTS} parts, the first is {missing}" in line
    assert "2 candidates encoded now, 3 of 3 parts there" in command(
        "encode", file, "--out", folder
    )
    assert before.items() <= written(folder).items()
    assert "0 candidates encoded now" in command("encode", file, "--out", folder)


def test_jobs_of_an_array_share_a_catalogue(file: Path, tmp_path: Path, command: Command) -> None:
    shard = ("encode", file, "--out", tmp_path / "out", "--shard")
    assert "3 candidates encoded now, 1 of 3 parts" in command(*shard, "2/2")
    assert [*written(tmp_path / "out")] == ["part-000000000003-000000000006.parquet"]
    assert "5 candidates encoded now, 3 of 3 parts" in command(*shard, "1/2")
    assert f"{len(REPLIES)} candidates" in command("import", tmp_path / "out", "--pool", "bulk")


def test_a_folder_of_another_model_or_catalogue_is_rejected(
    file: Path,
    command: Command,
    refused: Command,
    model_of: Callable[[EncoderKind], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = file.parent / "out"
    with monkeypatch.context() as patch:
        for name, value in model_of(EncoderKind.SINGLE).items():
            patch.setenv(f"TURNWISE_{name.upper()}", str(value))
        command("encode", file, "--out", folder)
        text = file.read_text()
        file.write_text('{"text": "Another."}')
        line = refused("encode", file, "--out", folder)
        assert line == f"error: '{folder}' has parts of another catalogue: name another folder"
        file.write_text(text)
    line = refused("import", folder, "--pool", "bulk")
    assert line.startswith(f"error: '{folder}' was encoded by model 'tiny-single' (")
    line = refused("encode", file, "--out", folder)
    assert line == f"error: '{folder}' has parts of another model: name another folder"


def test_a_damaged_folder_is_rejected(
    live: Live, file: Path, tmp_path: Path, command: Command, refused: Command
) -> None:
    live.fill(["Old."], "bulk")
    folder = tmp_path / "out"
    load = ("import", folder, "--pool", "bulk")
    line = refused(*load)
    assert line == f"error: '{folder}' holds no encoded catalogue: no manifest.json"
    command("encode", file, "--out", folder)
    first, second, third = sorted(folder.glob("*.parquet"))
    whole = second.read_bytes()
    for damaged in (whole[:-100], third.read_bytes()):
        second.write_bytes(damaged)
        assert f"{second} is " in refused(*load)
        assert f"{second} is " in refused("encode", file, "--out", folder)
    table = parquet.read_table(first)
    longer = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(3 * 32, np.float16)), 32)
    parquet.write_table(table.set_column(3, "vector", longer), first)
    second.write_bytes(whole)
    line = refused(*load)
    assert line == f"error: {first} is damaged: vectors are not of unit length"
    refused("import", folder, "--pool", "fresh")
    assert live.http.get("/pools/fresh").status_code == 404
    (folder / "manifest.json").write_text('{"format": 1}')
    assert "manifest.json: size: is required" in refused(*load)
    assert live.get("/pools/bulk")["version"] == 1
