"""Dialogues of made-up words, and a run of `turnwise evaluate`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertTokenizerFast, GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner

from turnwise.models.evaluation import metrics, report
from turnwise.models.roles import EncoderKind
from turnwise.service.cli.main import app

WORDS = ["bread", "rain", "train", "music", "garden", "letter", "winter", "river", "window", "lamp"]


@dataclass
class Written:
    """What a run left in its folder, and what it printed."""

    folder: Path
    output: str
    json: dict[str, Any]

    @property
    def systems(self) -> list[str]:
        return [row["system"] for row in self.json["rows"]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "dialogues.jsonl"
    lines = []
    for number in range(6):
        texts = [f"{WORDS[(number * 3 + n) % 10]} {WORDS[(n * n) % 10]}" for n in range(12)]
        said = [{"speaker": "AB"[n % 2], "text": text} for n, text in enumerate(texts)]
        lines.append(json.dumps({"id": str(number), "utterances": said}))
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(autouse=True)
def _no_time_for_timing_and_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ENOUGH", 0.0)
    monkeypatch.setattr(report, "draw_report", lambda _, path: path.touch())


@pytest.fixture
def triple(tiny_encoder_folder: Callable[[EncoderKind], Path]) -> str:
    return str(tiny_encoder_folder(EncoderKind.TRIPLE))


@pytest.fixture
def single(tiny_encoder_folder: Callable[[EncoderKind], Path]) -> str:
    return str(tiny_encoder_folder(EncoderKind.SINGLE))


@pytest.fixture
def evaluate(tmp_path: Path) -> Callable[..., Written]:
    """Runs a task on a file, without a base if none is named; each run has a folder of its own."""
    runs = iter(range(99))

    def run(task: str, *args: object, base: object | None = "") -> Written:
        folder = tmp_path / f"out-{next(runs)}"
        compared = [] if base is None else ["--base", str(base)]
        options = [*map(str, args), *compared, "--out", str(folder)]
        result = CliRunner().invoke(app, ["evaluate", task, *options])
        assert result.exit_code == 0, result.output
        return Written(folder, result.output, json.loads((folder / "results.json").read_text()))

    return run


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
