"""Each task of `turnwise evaluate` writes its table, and draws a metric of it."""

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.rerankers import save_tiny_cross_encoder, tiny_ioi
from turnwise.models.card import CARD
from turnwise.models.confidence import Calibration
from turnwise.models.evaluation import language_model
from turnwise.models.scores import Aggregation
from turnwise.models.text_files import write_jsonl

EXAMPLES = Path(__file__).parents[5] / "examples"


class Task(NamedTuple):
    """A command, and some of what it writes; names in capitals are files of the test."""

    options: str
    systems: set[str]
    metrics: set[str]
    picture: str


TASKS = {
    "next-utterance": Task(
        "--data DATA --model TRIPLE --base SINGLE --history 1 3 --parts",
        {"BM25", "base · mean of the context", "tiny-triple · direct neighbours"},
        {"average_rank/h=1", "average_rank/h=3", "average_rank/words=1-4"},
        "average_rank",
    ),
    "short-term": Task(
        "--data DATA --limit 1 --history 2 --distance 1 --generator LETTERS --model TRIPLE"
        " --base ''",
        {"BM25, no goal", "tiny-triple · eq. 4"},
        {"average_rank/h=2 d=1"},
        "average_rank",
    ),
    "long-term": Task(
        "--data DATA DATA --model TRIPLE SINGLE --limit 2 --setting 3,1,0 3,2,1 --base ''",
        {"BM25 · chain", "tiny-triple · chain", "tiny-single · chain"},
        {"hits@1/h=3 d=1 f=0", "hits@1/h=3 d=2 f=1"},
        "average_rank",
    ),
    "distances": Task(
        "--data DATA --model TRIPLE --reach 2 --base ''",
        {"tiny-triple"},
        {f"cosine/d={distance}" for distance in (-2, -1, 1, 2)},
        "cosine",
    ),
    "additivity": Task(
        "--data DATA --model TRIPLE",
        {"tiny-triple · pair", "tiny-triple · wrong order"},
        {"above_both"},
        "cosine",
    ),
    "confidence": Task(
        "--data DATA --pool DATA --size 5 20 --contexts 12 --model CALIBRATED",
        {"calibrated · all sizes", "calibrated · 5 candidates, without it"},
        {"auroc", "calibration_error", "risk", "risk/50%"},
        "risk",
    ),
    "ranking": Task(
        "--data RANKING --model TRIPLE NET --cross-encoder CROSS --base ''",
        {"random", "BM25", "tiny-triple · mean + net", "net · IoI", "cross · cross-encoder"},
        {"r_2@1", "ms_10_candidates"},
        "p@1",
    ),
    "similarity": Task(
        f"--data {EXAMPLES}/similarity.en.jsonl --model TRIPLE --base ''",
        {"word overlap", "tiny-triple · in context"},
        {"pearson", "spearman", "spearman/turns=1"},
        "spearman",
    ),
    "multiple-choice": Task(
        f"--data {EXAMPLES}/multiple_choice.de.jsonl --model SINGLE --language-model LETTERS"
        " --language de --base ''",
        {"tiny-single · joined to the context", "letters · with context, a token"},
        {"accuracy"},
        "accuracy",
    ),
    "pairs": Task(
        "--data PAIRS --model TRIPLE --base ''",
        {"BM25", "tiny-triple · last 1 row"},
        {"both", "single", "both/negation", "both/yes_no"},
        "both",
    ),
    "conversational-search": Task(
        f"--data {EXAMPLES}/search/conversations.jsonl --passages {EXAMPLES}/search/passages.jsonl"
        " --utterances 3 --words 10 --model TRIPLE",
        {"BM25 · rewrite", "tiny-triple · running query"},
        {"r@1", "mrr", "ndcg@10", "r@1/turns=1", "standard_error"},
        "r@1",
    ),
    "answers": Task(
        "--data ANSWERS --outside OUTSIDE --dialogues RECURRING --examples 0 1 --covered 0.5"
        " --model TRIPLE",
        {"tiny-triple · 0 examples", "tiny-triple · 1 example for 50%"},
        {"r@1", "r@3", "mrr", "standard_error"},
        "r@1",
    ),
}


@pytest.fixture
def files(
    data: Path, triple: str, single: str, language_model_folder: Path, tmp_path: Path
) -> dict[str, str]:
    """The files that the options name."""
    files = {"DATA": data, "TRIPLE": triple, "SINGLE": single}
    files |= {"LETTERS": language_model_folder, "CALIBRATED": tmp_path / "calibrated"}
    calibration = asdict(Calibration(0.5, 0.8, 1.0, -0.2, 0.1, -2.0))
    shutil.copytree(triple, tmp_path / "calibrated")
    (tmp_path / "calibrated" / CARD).write_text(
        json.dumps({"aggregation": asdict(Aggregation()), "confidence": calibration})
    )
    files |= {"NET": tmp_path / "net", "CROSS": tmp_path / "cross"}
    tiny_ioi().save(tmp_path / "net")
    save_tiny_cross_encoder(tmp_path / "cross", Path(single))
    words = ["bread", "rain", "music"]
    pair = {"context": [], "answers": ["bread", "rain"], "replies": ["bread train", "rain river"]}
    ranked = {"context": ["rain", "train"], "candidates": ["music", "lamp"]}
    lines: dict[str, list[dict[str, Any]]] = {
        "PAIRS": [{"kind": kind, **pair} for kind in ("yes_no", "negation")],
        "RANKING": [ranked | {"labels": labels} for labels in ([1, 0], [0, 1], [0, 0])],
        "ANSWERS": [
            {"id": word, "texts": [word], "examples": [f"{word} {other}" for other in words]}
            for word in words
        ],
        "OUTSIDE": [{"text": "lamp"}],
        "RECURRING": [
            {
                "id": f"{number}-{word}",
                "utterances": [
                    {"speaker": speaker, "text": text}
                    for speaker, text in zip(
                        "ABAB", (f"lamp {number}", "river", word, word), strict=True
                    )
                ],
            }
            for number in range(20)
            for word in words
        ],
    }
    for name, records in lines.items():
        files[name] = tmp_path / f"{name}.jsonl"
        write_jsonl(files[name], records)
    return {name: str(path) for name, path in files.items()}


@pytest.mark.parametrize("task", TASKS)
def test_a_task_writes_its_table_and_a_picture(
    task: str,
    files: dict[str, str],
    evaluate: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(language_model, "NEW_TOKENS", 4)
    options, systems, metrics, picture = TASKS[task]
    words = [files.get(word, word) for word in shlex.split(options)]
    written = evaluate(task, *words, base=None)
    assert written.json["task"] == task
    assert systems <= set(written.systems)
    assert metrics <= {name for row in written.json["rows"] for name in row["metrics"]}
    assert (written.folder / f"{picture}.png").is_file()
    assert (written.folder / "results.md").is_file()
