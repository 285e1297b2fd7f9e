import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertTokenizerFast, GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner

from turnwise.models.errors import DataError
from turnwise.models.rerankers import IoI
from turnwise.models.rerankers.ioi_network import InteractionNetwork, Sizes
from turnwise.models.rerankers.vocabulary import Vocabulary
from turnwise.models.roles import EncoderKind
from turnwise.service.cli import app

EXAMPLES = Path(__file__).parents[4] / "examples"
Folders = Callable[[EncoderKind], Path]
Results = Callable[[Path], dict[str, Any]]
run = CliRunner().invoke


@pytest.fixture
def language_model_folder(tmp_path: Path, tiny_encoder_folder: Folders) -> Path:
    folder = tmp_path / "letters"
    tokenizer = BertTokenizerFast.from_pretrained(tiny_encoder_folder(EncoderKind.SINGLE))
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


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_example_pairs_are_compared(
    language: str, tmp_path: Path, tiny_encoder_folder: Folders, results: Results
) -> None:
    file = EXAMPLES / f"similarity.{language}.jsonl"
    models = ["--model", str(tiny_encoder_folder(EncoderKind.TRIPLE)), "--base", ""]
    args = ["evaluate", "similarity", "--data", str(file), *models, "--out", str(tmp_path)]
    result = run(app, args)
    assert result.exit_code == 0, result.output
    written = results(tmp_path)
    assert written["systems"][0] == "word overlap"
    assert "tiny-triple · in context" in written["systems"]
    names = written["rows"][0]["metrics"].keys()
    assert {"pearson", "spearman"} <= names
    assert any(name.startswith("spearman/domain=") for name in names)
    assert any(name.startswith("spearman/turns=") for name in names)
    assert (tmp_path / "spearman.png").is_file()


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_example_questions_are_answered(
    language: str,
    tmp_path: Path,
    tiny_encoder_folder: Folders,
    language_model_folder: Path,
    results: Results,
) -> None:
    file = EXAMPLES / f"multiple_choice.{language}.jsonl"
    models = ["--model", str(tiny_encoder_folder(EncoderKind.SINGLE)), "--base", ""]
    models += ["--language-model", str(language_model_folder), "--language", language]
    args = ["evaluate", "multiple-choice", "--data", str(file), *models]
    result = run(app, [*args, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    written = results(tmp_path / "out")
    assert written["rows"][0]["metrics"]["accuracy"] == pytest.approx(0.2)
    choosers = {"tiny-single · joined to the context", "letters · with context, a token"}
    assert choosers <= set(written["systems"])
    assert (tmp_path / "out" / "accuracy.png").is_file()


def test_a_network_without_vectors_is_refused(tmp_path: Path) -> None:
    sizes = Sizes(vocabulary=len(Vocabulary(("a",))), dimension=8, blocks=1, words=4, turns=2)
    IoI(InteractionNetwork(sizes), Vocabulary(("a",))).save(tmp_path / "net")
    file = str(EXAMPLES / "similarity.en.jsonl")
    models = ["--model", str(tmp_path / "net"), "--base", ""]
    result = run(app, ["evaluate", "similarity", "--data", file, *models])
    assert result.exit_code == 2
    assert "net" in result.output


@pytest.mark.parametrize("scores", [(1, 2), (3, 3, 3)])
def test_scores_that_nothing_correlates_with_are_refused(
    tmp_path: Path, scores: tuple[int, ...]
) -> None:
    path = tmp_path / "pairs.jsonl"
    pair = {"context": [], "sentence1": "rain", "sentence2": "bread"}
    path.write_text("\n".join(json.dumps(pair | {"score": score}) for score in scores))
    args = ["evaluate", "similarity", "--data", str(path), "--out", str(tmp_path / "out")]
    result = run(app, args)
    assert isinstance(result.exception, DataError)
    assert str(path) in str(result.exception)
