"""Corpora of a few dialogues, and a configuration of each learner, made once a session."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.models.conftest import Folder
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder import heads
from turnwise.models.evaluation import metrics
from turnwise.models.roles import EncoderKind
from turnwise.models.training import curves
from turnwise.models.training.config import (
    CrossEncoderConfig,
    EncoderConfig,
    IoIConfig,
    MultilingualConfig,
    PairwiseConfig,
)
from turnwise.models.training.learners import encoder
from turnwise.models.training.trainer import Learner
from turnwise.models.training.windows import Window


@pytest.fixture(autouse=True)
def short_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit new heads in fewer steps, and scales to fewer texts: tiny ones need no more.

    There is no time for timing either.
    """
    monkeypatch.setattr(heads, "FIT_STEPS", 200)
    monkeypatch.setattr(encoder, "SCALE_TEXTS", 8)
    monkeypatch.setattr(metrics, "ENOUGH", 0.0)


def take_steps(learner: Learner[Any], count: int) -> list[float]:
    """Learn from the first batch again and again; return the losses."""
    batch = learner.batches(0)[0]
    optimiser = learner.optimiser()
    losses = []
    for _ in range(count):
        parts, _ = learner.loss(batch, np.random.default_rng(0))
        loss = torch.stack(list(parts.values())).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    return losses


def write_dialogues(path: Path, dialogues: list[list[str]]) -> Path:
    lines = [
        {
            "id": f"d{n}",
            "utterances": [{"speaker": "AB"[t % 2], "text": text} for t, text in enumerate(texts)],
        }
        for n, texts in enumerate(dialogues)
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def dialogue(turns: int, topic: str, responder: str = "B") -> Window:
    texts = tuple(Utterance("AB"[t % 2], f"{topic} turn {t}") for t in range(turns))
    return Window(Dialogue(topic, texts), texts, responder)


def both_sides(one: str = "lake", two: str = "oven", three: str = "tram") -> list[Window]:
    """Two windows of the second dialogue, one of them shorter, and two of others."""
    whole = dialogue(8, two, "A")
    other = Window(whole.dialogue, whole.utterances[1:6], "B")
    return [dialogue(6, one), whole, dialogue(3, three), other]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no curves: a picture takes longer than the steps of a tiny model."""
    monkeypatch.setattr(curves, "draw_curves", lambda *_: None)


@pytest.fixture(scope="session")
def small_corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with dialogues, dialogues whose responses repeat a word, and NLI pairs.

    The dialogues of `longer.jsonl`, which validate, have the same responses.
    """
    folder = tmp_path_factory.mktemp("corpora")
    dialogues = [[f"words {n} of turn {t}" for t in range(3 + n % 4)] for n in range(12)]
    write_dialogues(folder / "dialogues.jsonl", dialogues)
    matters = [[f"{chr(97 + n)} {'zyx'[t % 3]}" for t in range(2 + n % 4)] for n in range(16)]
    write_dialogues(folder / "matters.jsonl", matters)
    write_dialogues(folder / "longer.jsonl", [["so", *said] for said in matters])
    labels = ("entailment", "neutral", "contradiction")
    lines = [
        {"premise": f"p {n}", "hypothesis": f"h {n}", "label": labels[n % 3]} for n in range(9)
    ]
    (folder / "nli.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    return folder


@pytest.fixture(scope="session")
def encoder_config(tiny_encoder_folder: Folder, small_corpora: Path) -> EncoderConfig:
    """A triple encoder from a plain one, with every objective."""
    objectives = ("ccl", "c3l", "running_query", "reach", "order", "nli")
    return EncoderConfig.model_validate(
        {
            "kind": EncoderKind.TRIPLE,
            "base": str(tiny_encoder_folder(EncoderKind.SINGLE)),
            "data": [{"path": str(small_corpora / "dialogues.jsonl")}],
            "nli": {"paths": [str(small_corpora / "nli.jsonl")], "pairs": 4},
            "spaced": 0.5,
            "keep_base": 0.25,
            "aggregation": {"name": "last_rows", "last_rows": 3},
            "objectives": dict.fromkeys(objectives, 1.0),
            "batch_windows": 5,
            "precision": "float32",
            "optimiser": {"learning_rate": 1e-3},
            "validation": {"every": 2},
        }
    )


@pytest.fixture(scope="session")
def pairwise_config(tiny_encoder_folder: Folder, small_corpora: Path) -> PairwiseConfig:
    matters, longer = (str(small_corpora / f"{name}.jsonl") for name in ("matters", "longer"))
    return PairwiseConfig.model_validate(
        {
            "kind": "pairwise",
            "base": str(tiny_encoder_folder(EncoderKind.SINGLE)),
            "data": [{"path": matters}],
            "validation": {"paths": [longer], "every": 2},
            "batch_pairs": 8,
            "projection": 16,
            "layers": 1,
            "precision": "float32",
            "optimiser": {"learning_rate": 1e-3, "projector_learning_rate": 1e-2},
        }
    )


@pytest.fixture(scope="session")
def ioi_config(small_corpora: Path) -> IoIConfig:
    matters, longer = (str(small_corpora / f"{name}.jsonl") for name in ("matters", "longer"))
    return IoIConfig.model_validate(
        {
            "kind": "ioi",
            "data": [{"path": matters}],
            "validation": {"paths": [longer], "every": 2},
            "network": {"blocks": 2, "dimension": 12, "words": 5, "turns": 3},
            "word_vectors": {"min_count": 1, "epochs": 1},
            "batch": 20,
            "epochs": 2,
            "optimiser": {"learning_rate": 5e-3},
        }
    )


@pytest.fixture(scope="session")
def cross_encoder_config(tiny_encoder_folder: Folder, small_corpora: Path) -> CrossEncoderConfig:
    matters, longer = (str(small_corpora / f"{name}.jsonl") for name in ("matters", "longer"))
    return CrossEncoderConfig.model_validate(
        {
            "kind": "cross_encoder",
            "base": str(tiny_encoder_folder(EncoderKind.TRIPLE)),
            "layers": [0],
            "pieces": 32,
            "data": [{"path": matters}],
            "validation": {"paths": [longer], "every": 2},
            "candidates": 4,
            "batch_lists": 4,
            "optimiser": {"learning_rate": 1e-2},
        }
    )


@pytest.fixture(scope="session")
def multilingual_config(tiny_encoder_folder: Folder, small_corpora: Path) -> MultilingualConfig:
    words = {"lake": "see", "oven": "ofen", "tram": "bahn", "tree": "baum"}
    pairs = [
        {"source": f"{one} {two}", "target": f"der {words[two]} {words[one]}"}
        for one in words
        for two in words
    ]
    parallel = small_corpora / "parallel.jsonl"
    parallel.write_text("\n".join(json.dumps(pair) for pair in pairs))
    return MultilingualConfig.model_validate(
        {
            "kind": "multilingual",
            "base": str(tiny_encoder_folder(EncoderKind.HEADS)),
            "parallel": [{"path": str(parallel)}],
            "data": [{"path": str(small_corpora / "matters.jsonl"), "utterances": 24}],
            "pieces": 100,
            "batch_texts": 8,
            "precision": "float32",
            "optimiser": {"learning_rate": 1e-3},
            "validation": {"every": 2},
        }
    )


@pytest.fixture(scope="session")
def heads_config(encoder_config: EncoderConfig) -> EncoderConfig:
    """An encoder with heads in 8 bits, with every objective."""
    return encoder_config.model_copy(update={"kind": EncoderKind.HEADS, "eight_bits": True})
