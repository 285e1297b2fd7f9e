import json
import logging
from pathlib import Path

import numpy as np
import pytest

from tests.unit.models.conftest import Encoders
from turnwise.models.data import Dialogue
from turnwise.models.evaluation import metrics
from turnwise.models.evaluation.ranking import (
    Building,
    RankingSet,
    build_ranking,
    evaluate_ranking,
    ranking_set,
    read_ranking,
)
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.split import encode_split
from turnwise.models.evaluation.systems import linear_systems
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.roles import EncoderKind

CANDIDATES = 6


@pytest.fixture(scope="module")
def data(dialogues: list[Dialogue]) -> RankingSet:
    examples = list(build_ranking(dialogues, Building(candidates=CANDIDATES, replies=2)))
    return ranking_set(examples, [f"file, line {n}" for n in range(1, len(examples) + 1)])


@pytest.fixture(scope="module")
def rows(
    data: RankingSet, tiny_encoder: Encoders, pairwise: PairwiseModel, ioi: IoI
) -> dict[str, Row]:
    models = {"t": tiny_encoder(EncoderKind.TRIPLE), "s": tiny_encoder(EncoderKind.SINGLE)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "ENOUGH", 0.0)  # no time to spend on timing
        evaluated = evaluate_ranking({**models, "net": ioi, "pair": pairwise}, data)
        return {row.system: row for row in evaluated}


def test_every_model_has_its_rows(rows: dict[str, Row]) -> None:
    assert list(rows) == [
        "random",
        "BM25",
        "t · bi-encoder",
        "t · mean",
        "t · last 1 row",
        "t · last 2 rows",
        "t · last 3 rows",
        "t · last 4 rows",
        "t · MaxSim",
        "t · mean + net",
        "s · mean of the context",
        "s · last utterance",
        "s · whole history",
        "net · IoI",
        "pair · pairwise",
    ]


def test_a_row_has_the_metrics_of_the_field(rows: dict[str, Row]) -> None:
    names = {"r_2@1", "r_6@1", "r_6@2", "r_6@5", "map", "mrr", "p@1"}
    costs = {"ms_10_candidates", "ms_1000_candidates"}
    for row in rows.values():
        assert {name for name in row.metrics if "/" not in name} == names | costs
        assert row.ms_per_context == row.metrics["ms_1000_candidates"]
        assert all(0 <= row.metrics[name] <= 1 for name in names)
        assert {"p@1/turns=3-4", "p@1/turns=5-8"} <= row.metrics.keys()
        assert row.outcomes
        assert row.outcomes.mean == pytest.approx(row.metrics["p@1"])


def test_recall_is_that_of_the_systems_scores(
    rows: dict[str, Row], data: RankingSet, tiny_encoder: Encoders
) -> None:
    systems = linear_systems(encode_split(tiny_encoder(EncoderKind.TRIPLE), data.split))
    (mean,) = (system for system in systems if system.name == "mean")
    found = []
    for place, (candidates, relevant) in enumerate(
        zip(data.candidates, data.relevant, strict=True)
    ):
        scores = mean.scores(np.array([place]), candidates)[0]
        found.append(relevant[np.argsort(-scores)[:2]].any())
    assert rows["t · mean"].metrics["r_6@2"] == pytest.approx(np.mean(found))


def test_sizes_that_differ_are_named_n(tmp_path: Path) -> None:
    records = [
        {
            "context": ["bread"],
            "candidates": [f"rain {n}" for n in range(size)],
            "labels": [1] + [0] * (size - 1),
        }
        for size in (3, 4)
    ]
    path = tmp_path / "sizes.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    random, _ = evaluate_ranking({}, read_ranking([path]))
    assert {"r_n@1", "r_n@2"} <= random.metrics.keys()


def test_a_speaker_of_the_context_may_be_named_as_it_stands_there(tmp_path: Path) -> None:
    said = [{"speaker": name, "text": "rain"} for name in ("A  B", "C")]
    record = {"context": said, "speaker": "A  B", "candidates": ["sun", "bread"], "labels": [1, 0]}
    path = tmp_path / "speakers.jsonl"
    path.write_text(json.dumps(record))
    (context,) = read_ranking([path]).split.contexts
    assert context.target.speaker == context.utterances[0].speaker


def test_ranking_reads_the_files_of_ioi(tmp_path: Path) -> None:
    lines = [
        ("1", "Any news?", "What news?", "None yet."),
        ("0", "Any news?", "What news?", "Take the bus."),
        ("1", "Any news?", "What news?", "It came."),
        ("0", "Where are you?", "", "At  home."),
        ("1", "Where are you?", "", "Here."),
        ("0", "All wrong?", "Yes."),
    ]
    file = tmp_path / "test.tsv"
    file.write_text("".join("\t".join(line) + "\n" for line in lines))
    read = read_ranking([file])
    found = [
        (context.texts, [read.split.pool[index] for index in own], right.tolist())
        for context, own, right in zip(
            read.split.contexts, read.candidates, read.relevant, strict=True
        )
    ]
    two_right = (["None yet.", "Take the bus.", "It came."], [True, False, True])
    assert found == [
        (["Any news?", "What news?"], *two_right),
        (["Where are you?"], ["At home.", "Here."], [False, True]),
    ]
    assert [context.target.speaker for context in read.split.contexts] == ["A", "B"]
    assert read.where == (f"{file}, line 1", f"{file}, line 4")
    assert read.dropped == (f"{file}, line 6",)


def test_progress_is_told_of_every_context(data: RankingSet) -> None:
    told: list[tuple[str, int, int]] = []
    list(evaluate_ranking({}, data, lambda *step: told.append(step)))
    total = len(data.candidates)
    assert told == [(name, n, total) for name in ("random", "BM25") for n in range(1, total + 1)]


def test_texts_that_are_cut_are_said_with_their_place(
    tmp_path: Path, tiny_encoder: Encoders, ioi: IoI, caplog: pytest.LogCaptureFixture
) -> None:
    records = [
        {"context": ["bread"], "candidates": ["rain", "sun"], "labels": [1, 0]},
        {"context": ["x " * 70, "y " * 70], "candidates": ["z " * 200, "sun"], "labels": [1, 0]},
    ]
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    with caplog.at_level(logging.WARNING, "turnwise.evaluation"):
        models = {"s": tiny_encoder(EncoderKind.SINGLE), "net": ioi}
        next(iter(evaluate_ranking(models, read_ranking([path]))))
    place = f"{path}, line 2, field"
    assert [record.getMessage() for record in caplog.records] == [
        f'{place} "candidates": longer than s reads, and cut, as are 1 of 6 in all',
        f'{place} "context": longer than s · whole history reads, and cut, as are 1 of 2 in all',
        f'{place} "context": longer than net reads, and cut, as are 3 of 6 in all',
    ]
