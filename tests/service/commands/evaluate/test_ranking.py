import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast
from typer.testing import CliRunner

from turnwise.models.evaluation.systems import SHORT_LIST
from turnwise.models.rerankers import IoI
from turnwise.models.rerankers.ioi_network import InteractionNetwork, Sizes
from turnwise.models.rerankers.vocabulary import Vocabulary
from turnwise.models.roles import EncoderKind
from turnwise.service.app import wiring
from turnwise.service.cli import app

Folders = Callable[[EncoderKind], Path]
Results = Callable[[Path], dict[str, Any]]
run = CliRunner().invoke


@pytest.fixture
def r10(tmp_path: Path) -> Path:
    path = tmp_path / "r10.jsonl"
    records = [
        {"context": ["rain", "train"], "candidates": ["music", "lamp"], "labels": labels}
        for labels in ([1, 0], [0, 1], [0, 0])
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    return path


@pytest.fixture
def ioi_folder(tmp_path: Path) -> Path:
    vocabulary = Vocabulary(("rain", "lamp"))
    sizes = Sizes(vocabulary=len(vocabulary), dimension=8, blocks=1, words=4, turns=2)
    IoI(InteractionNetwork(sizes), vocabulary).save(tmp_path / "net")
    return tmp_path / "net"


@pytest.fixture
def cross_encoder_folder(tmp_path: Path, tiny_encoder_folder: Folders) -> Path:
    folder = tmp_path / "cross"
    tokenizer = BertTokenizerFast.from_pretrained(tiny_encoder_folder(EncoderKind.SINGLE))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def models(tiny_encoder_folder: Folders, ioi_folder: Path, cross_encoder_folder: Path) -> list[str]:
    options = ["--model", str(tiny_encoder_folder(EncoderKind.TRIPLE)), str(ioi_folder)]
    return [*options, "--cross-encoder", str(cross_encoder_folder), "--base", ""]


def test_encoders_re_rankers_and_cross_encoders_stand_in_one_table(
    r10: Path, tmp_path: Path, models: list[str], results: Results
) -> None:
    out = tmp_path / "out"
    result = run(app, ["evaluate", "ranking", "--data", str(r10), *models, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert f"dropped 1 contexts, the first at {r10}, line 3: all" in result.output
    assert "r_2@1" in result.output
    written = results(out)
    assert written["task"] == "ranking"
    named = {"random", "BM25", "tiny-triple · mean + net", "net · IoI", "cross · cross-encoder"}
    assert named <= set(written["systems"])
    assert (out / "p@1.png").is_file()
    markdown = (out / "results.md").read_text()
    assert "ms 10 candidates | ms 1000 candidates |" in markdown
    assert "## p@1" in markdown


def test_what_is_built_can_be_ranked(
    data: Path, tmp_path: Path, tiny_encoder_folder: Folders, results: Results
) -> None:
    built, out = tmp_path / "built.jsonl", tmp_path / "out"
    chosen = ["--negatives", "random", "same-dialogue", "--candidates", "4", "--replies", "2"]
    args = ["evaluate", "build-ranking", "--data", str(data), *chosen, "--out", str(built)]
    result = run(app, args)
    assert result.exit_code == 0, result.output
    assert "12 contexts written" in result.output
    assert all(len(json.loads(line)["candidates"]) == 4 for line in built.read_text().splitlines())
    model = ["--model", str(tiny_encoder_folder(EncoderKind.SINGLE)), "--base", ""]
    args = ["evaluate", "ranking", "--data", str(built), *model, "--out", str(out)]
    assert run(app, args).exit_code == 0
    assert "r_4@1" in results(out)["rows"][0]["metrics"]


def test_a_seed_below_0_is_refused(data: Path, tmp_path: Path) -> None:
    args = ["evaluate", "build-ranking", "--data", str(data), "--out", str(tmp_path / "out.jsonl")]
    result = run(app, [*args, "--seed", "-1"])
    assert result.exit_code == 2
    assert "--seed" in result.output


def test_bad_data_is_named_before_a_model_is_loaded(r10: Path) -> None:
    r10.write_text(json.dumps({"context": [], "candidates": ["a"], "labels": [1]}))
    result = run(app, ["evaluate", "ranking", "--data", str(r10), "--model", "nowhere"])
    assert result.exit_code == 1
    assert 'line 1, field "context"' in str(result.exception)


def test_the_short_list_that_is_measured_is_as_long_as_the_service_s() -> None:
    assert wiring.SHORT_LIST == SHORT_LIST
