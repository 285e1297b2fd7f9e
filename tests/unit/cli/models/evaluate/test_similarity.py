import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertTokenizerFast, GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner

from tests.support.rerankers import tiny_ioi
from turnwise.models.errors import DataError
from turnwise.service.cli.main import app

EXAMPLES = Path(__file__).parents[5] / "examples"
run = CliRunner().invoke


@pytest.fixture
def language_model_folder(tmp_path: Path, single: str) -> Path:
    folder = tmp_path / "letters"
    tokenizer = BertTokenizerFast.from_pretrained(single, eos_token="[PAD]")  # noqa: S106
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=256,
        n_embd=8,
        n_layer=1,
        n_head=1,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_the_example_pairs_are_compared(triple: str, evaluate: Callable[..., Any]) -> None:
    file = EXAMPLES / "similarity.en.jsonl"
    written = evaluate("similarity", "--data", file, "--model", triple)
    assert written.systems[0] == "word overlap"
    assert "tiny-triple · in context" in written.systems
    names = written.json["rows"][0]["metrics"].keys()
    assert {"pearson", "spearman"} <= names
    for group in ("domain", "turns"):
        assert any(name.startswith(f"spearman/{group}=") for name in names)
    assert (written.folder / "spearman.png").is_file()


def test_the_example_questions_are_answered(
    single: str, language_model_folder: Path, evaluate: Callable[..., Any]
) -> None:
    file = EXAMPLES / "multiple_choice.de.jsonl"
    models = ["--model", single, "--language-model", language_model_folder]
    written = evaluate("multiple-choice", "--data", file, *models, "--language", "de")
    assert written.json["rows"][0]["metrics"]["accuracy"] == pytest.approx(0.2)
    choosers = {"tiny-single · joined to the context", "letters · with context, a token"}
    assert choosers <= set(written.systems)
    assert (written.folder / "accuracy.png").is_file()


def test_a_network_without_vectors_is_rejected(tmp_path: Path) -> None:
    tiny_ioi().save(tmp_path / "net")
    file = str(EXAMPLES / "similarity.en.jsonl")
    models = ["--model", str(tmp_path / "net"), "--base", ""]
    result = run(app, ["evaluate", "similarity", "--data", file, *models])
    assert result.exit_code == 2
    assert "net" in result.output


@pytest.mark.parametrize("scores", [(1, 2), (3, 3, 3)])
def test_scores_that_nothing_correlates_with_are_rejected(
    tmp_path: Path, scores: tuple[int, ...]
) -> None:
    path = tmp_path / "pairs.jsonl"
    pair = {"context": [], "sentence1": "rain", "sentence2": "bread"}
    path.write_text("\n".join(json.dumps(pair | {"score": score}) for score in scores))
    args = ["evaluate", "similarity", "--data", str(path), "--out", str(tmp_path / "out")]
    result = run(app, args)
    assert isinstance(result.exception, DataError)
    assert str(path) in str(result.exception)
