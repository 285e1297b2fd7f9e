from collections.abc import Callable

import numpy as np
import pytest

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.short_term import (
    evaluate_short_term,
    goal_systems,
    short_term_average_rank,
)
from turnwise.models.evaluation.short_term_problems import Problem, make_problems
from turnwise.models.evaluation.vectors import VectorTable, after_keys
from turnwise.models.roles import EncoderKind, Role, relation_to
from turnwise.models.scores import Aggregation

Encoders = Callable[[EncoderKind], UtteranceEncoder]


@pytest.fixture
def problems(dialogues: list[Dialogue]) -> list[Problem]:
    replies = [said.text for said in dialogues[7].utterances]
    return make_problems(dialogues[:3], [2, 5], [1, 2], lambda _d, _h: replies)


def naive(name: str, encoder: UtteranceEncoder, problem: Problem) -> list[float]:
    goal = encoder.encode([problem.goal.text], Role.AFTER)[0].astype(np.float64)
    relation = relation_to(problem.true.speaker, problem.goal.speaker)
    scores = []
    for text in (problem.true.text, *problem.candidates):
        candidate = encoder.encode([text], Role.SECOND, relation)[0].astype(np.float64)
        score = candidate @ goal
        for said in problem.context if name == "eq. 4" else ():
            stands = relation_to(said.speaker, problem.goal.speaker)
            pair = encoder.encode([said.text], Role.FIRST, stands)[0] + candidate
            score += pair @ goal / np.linalg.norm(pair) / len(problem.context)
        scores.append(float(score))
    return scores


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (EncoderKind.TRIPLE, ["bi-encoder", "eq. 4"]),
        (EncoderKind.CURVED, ["CCL"]),
        (EncoderKind.CURVED_WITHOUT_SPEAKERS, ["CCL"]),
        (EncoderKind.SINGLE, ["cosine to goal"]),
    ],
)
def test_scores_are_those_of_the_equation(
    kind: EncoderKind, names: list[str], tiny_encoder: Encoders, problems: list[Problem]
) -> None:
    encoder, problem = tiny_encoder(kind), problems[-1]
    systems = goal_systems(kind)
    assert [system.name for system in systems] == names
    keys = [
        (said.text, Role.FIRST, relation_to(said.speaker, problem.goal.speaker))
        for said in problem.context
    ]
    for system in systems:
        table = VectorTable(encoder, [*system.keys(problem), *keys])
        expected = naive(system.name, encoder, problem)
        np.testing.assert_allclose(system.score(problem, table), expected, atol=1e-5)


def test_a_problem_brings_its_candidates_its_goal_and_the_last_utterance(
    problems: list[Problem],
) -> None:
    problem = problems[0]
    bi_encoder, pairs = goal_systems(EncoderKind.TRIPLE)
    texts = [text for text, _, _ in pairs.keys(problem)]
    said = [problem.true.text, *problem.candidates, problem.goal.text]
    assert texts == [*said, problem.context[-1].text]
    assert bi_encoder.keys(problem)[-1:] == after_keys([problem.goal.text])


def test_rows_by_setting_and_parity(tiny_encoder: Encoders, problems: list[Problem]) -> None:
    rows = evaluate_short_term({"x": tiny_encoder(EncoderKind.TRIPLE)}, problems)
    eq_4 = next(row for row in rows if row.system == "x · eq. 4")
    ranks = {
        key.partition("/")[2]: value
        for key, value in eq_4.metrics.items()
        if key.startswith("average_rank")
    }
    assert list(ranks) == ["", "h=2 d=1", "h=2 d=2", "h=5 d=1", "h=5 d=2", "even", "odd"]
    assert ranks["odd"] == pytest.approx((ranks["h=2 d=1"] + ranks["h=5 d=1"]) / 2)
    assert ranks["even"] == pytest.approx((ranks["h=2 d=2"] + ranks["h=5 d=2"]) / 2)
    assert ranks[""] == pytest.approx((ranks["odd"] + ranks["even"]) / 2)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            EncoderKind.TRIPLE,
            [
                "x · bi-encoder",
                "x · eq. 4",
                "x · eq. 4 + 0.5 · mean",
                "x · bi-encoder, no goal",
                "x · mean, no goal",
            ],
        ),
        (EncoderKind.CURVED, ["x · CCL", "x · CCL + 0.5 · CCL", "x · CCL, no goal"]),
        (
            EncoderKind.SINGLE,
            [
                "x · cosine to goal",
                "x · cosine to goal + 0.5 · mean of the context",
                "x · mean of the context, no goal",
            ],
        ),
    ],
)
def test_what_sees_no_goal_stands_in_the_same_table(
    kind: EncoderKind, names: list[str], tiny_encoder: Encoders, problems: list[Problem]
) -> None:
    rows = evaluate_short_term({"x": tiny_encoder(kind)}, problems)
    found = [row.system for row in rows]
    assert found[: 3 + len(names)] == ["random", "BM25", "BM25, no goal", *names]
    last = {
        EncoderKind.TRIPLE: "MaxSim",
        EncoderKind.CURVED: "CCL",
        EncoderKind.SINGLE: "whole history",
    }[kind]
    assert found[-1] == f"x · {last}, no goal"
    assert all(row.ms_per_context > 0 for row in rows)


def test_what_sees_no_goal_ranks_by_the_context(
    tiny_encoder: Encoders, problems: list[Problem]
) -> None:
    encoder = tiny_encoder(EncoderKind.SINGLE)
    rows = {row.system: row for row in evaluate_short_term({"x": encoder}, problems)}
    ranks = []
    for problem in problems:
        query = encoder.encode([said.text for said in problem.context], Role.SECOND).sum(axis=0)
        texts = list(dict.fromkeys((problem.true.text, *problem.candidates)))
        scores = encoder.encode(texts, Role.AFTER) @ query
        ranks.append(1 + (scores > scores[0]).sum())
    settings = [(len(problem.context), problem.goal_distance) for problem in problems]
    by_setting = [
        np.mean([rank for rank, other in zip(ranks, settings, strict=True) if other == setting])
        for setting in dict.fromkeys(settings)
    ]
    metrics = rows["x · mean of the context, no goal"].metrics
    assert metrics["average_rank"] == pytest.approx(np.mean(by_setting))


def test_what_leads_to_the_goal_and_fits_is_what_rank_answers(
    tiny_encoder: Encoders, problems: list[Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    monkeypatch.setattr(encoder, "aggregation", Aggregation("last_rows", 1))
    problem = problems[-1]
    rows = {row.system: row for row in evaluate_short_term({"x": encoder}, [problem])}
    said = problem.context
    stands = [relation_to(one.speaker, problem.true.speaker) for one in said]
    first = encoder.encode([one.text for one in said], Role.FIRST, stands).astype(np.float64)
    newest = encoder.encode([said[-1].text], Role.SECOND, stands[-1])[0]
    pairs = first[:-1] + newest
    query = (pairs / np.linalg.norm(pairs, axis=1, keepdims=True)).sum(axis=0)
    fits = encoder.encode([problem.true.text, *problem.candidates], Role.AFTER) @ query
    scores = np.array(naive("eq. 4", encoder, problem)) + 0.5 * fits
    rank = 1 + (scores > scores[0]).sum()
    assert rows["x · eq. 4 + 0.5 · last 1 row"].metrics["average_rank"] == rank


def test_bm25_looks_for_the_words_of_the_goal() -> None:
    said = [Utterance("A", "hello"), Utterance("B", "a lamp"), Utterance("A", "the lamp")]
    problem = Problem((said[0],), ("a train", "hello"), said[1], said[2], 1)
    rows = {row.system: row.metrics for row in evaluate_short_term({}, [problem])}
    assert rows["BM25"]["average_rank"] == 1
    assert rows["BM25, no goal"]["average_rank"] == 2.5


def test_hits_of_eleven_are_certain_at_twenty_five(
    tiny_encoder: Encoders, problems: list[Problem]
) -> None:
    for row in evaluate_short_term({"x": tiny_encoder(EncoderKind.SINGLE)}, problems):
        assert row.metrics["hits@25"] == row.metrics["hits@50"] == 1


def test_the_quick_average_ranks_are_those_of_the_whole_evaluation(
    tiny_encoder: Encoders, problems: list[Problem]
) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    whole = {row.system: row for row in evaluate_short_term({"x": encoder}, problems)}
    for name, rank in short_term_average_rank(encoder, problems).items():
        assert rank == pytest.approx(whole[f"x · {name}"].metrics["average_rank"])
