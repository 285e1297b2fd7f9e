import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.rerankers import save_tiny_cross_encoder, tiny_ioi
from turnwise.models.evaluation.systems import SHORT_LIST
from turnwise.service.app import wiring
from turnwise.service.cli.main import app

run = CliRunner().invoke


@pytest.fixture
def cross_encoder_folder(tmp_path: Path, single: str) -> Path:
    return save_tiny_cross_encoder(tmp_path / "cross", Path(single))


def test_encoders_re_rankers_and_cross_encoders_stand_in_one_table(
    tmp_path: Path, triple: str, cross_encoder_folder: Path, evaluate: Callable[..., Any]
) -> None:
    path = tmp_path / "r10.jsonl"
    net = tmp_path / "net"
    records = [
        {"context": ["rain", "train"], "candidates": ["music", "lamp"], "labels": labels}
        for labels in ([1, 0], [0, 1], [0, 0])
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    tiny_ioi().save(net)
    models = ["--model", triple, net, "--cross-encoder", cross_encoder_folder]
    written = evaluate("ranking", "--data", path, *models)
    assert f"dropped 1 context, the first at {path}, line 3: all" in written.output
    assert "r_2@1" in written.output
    named = {"random", "BM25", "tiny-triple · mean + net", "net · IoI", "cross · cross-encoder"}
    assert named <= set(written.systems)
    assert (written.folder / "p@1.png").is_file()
    markdown = (written.folder / "results.md").read_text()
    assert "ms 10 candidates | ms 1000 candidates |" in markdown
    assert "## p@1" in markdown


def test_a_file_that_was_built_can_be_ranked(
    data: Path, tmp_path: Path, single: str, evaluate: Callable[..., Any]
) -> None:
    built = tmp_path / "built.jsonl"
    chosen = ["--negatives", "random", "same-dialogue", "--candidates", "4", "--replies", "2"]
    result = run(
        app,
        ["evaluate", "build-ranking", "--data", str(data), *chosen, "--out", str(built)],
    )
    assert "12 contexts written" in result.output
    assert all(len(json.loads(line)["candidates"]) == 4 for line in built.read_text().splitlines())
    written = evaluate("ranking", "--data", built, "--model", single)
    assert "r_4@1" in written.json["rows"][0]["metrics"]


def test_bad_data_is_named_before_a_model_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "r10.jsonl"
    path.write_text(json.dumps({"context": [], "candidates": ["a"], "labels": [1]}))
    result = run(app, ["evaluate", "ranking", "--data", str(path), "--model", "nowhere"])
    assert result.exit_code == 1
    assert 'line 1, field "context"' in str(result.exception)


def test_the_short_list_is_as_long_as_the_service_s() -> None:
    assert wiring.SHORT_LIST == SHORT_LIST
