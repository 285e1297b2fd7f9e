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
    return ranking_set([(each, f"file, line {n}") for n, each in enumerate(examples, start=1)])


@pytest.fixture(scope="module")
def rows(
    data: RankingSet, tiny_encoder: Encoders, pairwise: PairwiseModel, ioi: IoI
) -> dict[str, Row]:
    models = {"t": tiny_encoder(EncoderKind.TRIPLE), "s": tiny_encoder(EncoderKind.SINGLE)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "ENOUGH", 0.0)  # no time to spend on timing
        evaluated = evaluate_ranking({**models, "net": ioi, "pair": pairwise}, data)
        return {row.system: row for row in evaluated}


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
