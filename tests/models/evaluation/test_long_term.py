from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.long_term import (
    ORDERS,
    asked_goals,
    evaluate_long_term,
    goal_pulls,
    greedy_metrics,
    link_scores,
    order_metrics,
)
from turnwise.models.evaluation.long_term_problems import GoalSet, Setting, make_goal_sets
from turnwise.models.evaluation.systems import encoder_systems
from turnwise.models.evaluation.vectors import VectorTable, after_keys, context_keys
from turnwise.models.roles import EncoderKind, Role, relation_to

Encoders = Callable[[EncoderKind], UtteranceEncoder]


def table_of(encoder: UtteranceEncoder, goals: GoalSet) -> VectorTable:
    said = (*goals.context, *goals.goals)
    after = after_keys(utterance.text for utterance in said)
    speakers = {utterance.speaker for utterance in said}
    before = [key for speaker in speakers for key in context_keys(said, speaker, Role.SECOND)]
    return VectorTable(encoder, [*after, *before])


@pytest.fixture
def goals(dialogues: list[Dialogue]) -> GoalSet:
    return make_goal_sets(dialogues, [Setting(4, 1, 2)])[0]


@pytest.mark.parametrize("kind", list(EncoderKind))
def test_links_are_those_of_the_speakers(
    kind: EncoderKind, tiny_encoder: Encoders, goals: GoalSet
) -> None:
    encoder = tiny_encoder(kind)
    found = link_scores(goals, table_of(encoder, goals))
    for x, before in enumerate(goals.goals):
        for y, after in enumerate(goals.goals):
            stands = relation_to(before.speaker, after.speaker)
            b = encoder.encode([before.text], Role.SECOND, stands)[0]
            expected = float(b @ encoder.encode([after.text], Role.AFTER)[0])
            assert found[x, y] == pytest.approx(expected, abs=1e-5)


def test_pull_sums_the_history(tiny_encoder: Encoders, dialogues: list[Dialogue]) -> None:
    encoder = tiny_encoder(EncoderKind.CURVED)
    goal_sets = make_goal_sets(dialogues, [Setting(4, 1, 2)])
    split = asked_goals(goal_sets)
    found = goal_pulls(encoder_systems(encoder, split)[0], split)
    assert found.shape == (len(goal_sets), 3)
    for goals, of_goals in zip(goal_sets, found, strict=True):
        for goal, pull in zip(goals.goals, of_goals, strict=True):
            expected = 0.0
            for said in goals.context:
                stands = relation_to(said.speaker, goal.speaker)
                b = encoder.encode([said.text], Role.SECOND, stands)[0]
                expected += float(b @ encoder.encode([goal.text], Role.AFTER)[0])
            assert pull == pytest.approx(expected, abs=1e-5)


def test_bm25_links_goals_by_their_words() -> None:
    texts = ["a tram", "which tram", "tram or bus", "late bus", "no"]
    said = tuple(Utterance("AB"[n % 2], text) for n, text in enumerate(texts))
    goals = GoalSet(Setting(1, 1, 0), said[:1], said[1:4])
    rows = {row.system: row.metrics for row in evaluate_long_term({}, [goals])}
    assert rows["BM25 · chain"]["hits@1"] == 1
    assert rows["BM25 · chain"]["average_rank"] == 1.5  # as good as its reverse
    assert rows["BM25 · greedy"]["hits@1"] == 1


def test_the_true_order_stands_first_and_its_reverse_last() -> None:
    assert ORDERS[0] == (0, 1, 2)
    assert ORDERS[-1] == (2, 1, 0)
    assert sorted(ORDERS) == sorted(permutations(range(3)))


def test_hits_leave_the_exact_reverse_out() -> None:
    only_reverse_is_better = np.array([[0.5, 0.1, 0.1, 0.1, 0.1, 0.9]], np.float32)
    metrics = order_metrics(only_reverse_is_better)
    assert metrics["hits@1"] == 1
    assert metrics["hits@1_reverse"] == 0
    assert metrics["average_rank"] == 2


def test_greedy_ranks_the_first_goal() -> None:
    metrics = greedy_metrics(np.array([[3, 2, 1], [2, 3, 1], [1, 1, 1]], np.float32))
    assert metrics == pytest.approx({"average_rank": (1 + 2 + 2) / 3, "hits@1": 1 / 3})


def test_equal_goals_tie(tiny_encoder: Encoders, dialogues: list[Dialogue]) -> None:
    goals = make_goal_sets(dialogues[:1], [Setting(2, 2, 0)])[0]
    same = GoalSet(goals.setting, goals.context, goals.goals[:1] * 3)
    rows = evaluate_long_term({"x": tiny_encoder(EncoderKind.TRIPLE)}, [same])
    ranks = [row.metrics["average_rank"] for row in rows if "random" not in row.system]
    # BM25, then the model with its seven systems of next-utterance selection
    assert ranks == [3.5, 3.5, 2] + [3.5, 3.5] + [2] * 7


def test_rows_of_every_method(tiny_encoder: Encoders, dialogues: list[Dialogue]) -> None:
    settings = [Setting(2, 2, 0), Setting(2, 2, 1)]
    goal_sets = make_goal_sets(dialogues, settings)
    rows = evaluate_long_term({"x": tiny_encoder(EncoderKind.SINGLE)}, goal_sets)
    assert [row.system for row in rows] == [
        "random order",
        "random next goal",
        "BM25 · chain",
        "BM25 · chain + curving",
        "BM25 · greedy",
        "x · chain",
        "x · chain + curving",
        "x · greedy",
        "x · greedy, last utterance",
        "x · greedy, whole history",
    ]
    assert {"average_rank/h=2 d=2 f=0", "hits@4/h=2 d=2 f=1"} <= rows[2].metrics.keys()
    assert all(row.ms_per_context > 0 for row in rows[2:])
