import numpy as np
import pytest

from tests.unit.models.conftest import Encoders
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.short_term import (
    ShortTermExample,
    add_fit,
    evaluate_short_term,
    goal_systems,
    make_examples,
    short_term_average_rank,
    without_goals,
)
from turnwise.models.evaluation.systems import precomputed_system, scores_of
from turnwise.models.roles import EncoderKind, Role, relation_to
from turnwise.models.scores import reachability


@pytest.fixture
def examples(dialogues: list[Dialogue]) -> list[ShortTermExample]:
    replies = [said.text for said in dialogues[7].utterances]
    return make_examples(dialogues[:3], [2, 5], [1, 2], lambda _d, _h: replies)


def reached(name: str, encoder: UtteranceEncoder, example: ShortTermExample) -> np.ndarray:
    """The reachability of the goal by each reply; only "eq. 4" reads the context."""
    context = example.context if name == "eq. 4" else ()
    relations = [relation_to(said.speaker, example.goal.speaker) for said in context]
    first = encoder.encode([said.text for said in context], Role.FIRST, relations)
    relation = relation_to(example.true.speaker, example.goal.speaker)
    replies = encoder.encode([example.true.text, *example.candidates], Role.SECOND, relation)
    return reachability(first, replies, encoder.encode([example.goal.text], Role.AFTER))[:, 0]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (EncoderKind.TRIPLE, ["bi-encoder", "eq. 4"]),
        (EncoderKind.TRIPLE_WITHOUT_SPEAKERS, ["bi-encoder", "eq. 4"]),
        (EncoderKind.CURVED, ["CCL"]),
        (EncoderKind.CURVED_WITHOUT_SPEAKERS, ["CCL"]),
        (EncoderKind.SINGLE, ["cosine to goal"]),
    ],
)
def test_scores_toward_the_goal_are_those_of_the_equation(
    kind: EncoderKind, names: list[str], tiny_encoder: Encoders, examples: list[ShortTermExample]
) -> None:
    encoder = tiny_encoder(kind)
    data = without_goals(examples)
    systems = goal_systems(encoder, examples, data)
    assert [system.name for system in systems] == names
    for system in systems:
        for n in (0, len(examples) - 1):
            expected = reached(system.name, encoder, examples[n])
            found = scores_of(system, n, data.candidates[n])
            np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_next_utterance_score_has_half_the_weight() -> None:
    scores = {"g": [1.0, 2], "f": [4.0, 8]}
    toward, fit = (precomputed_system(name, np.array([row])) for name, row in scores.items())
    both = add_fit(toward, fit)
    assert both.name == "g + 0.5 · f"
    assert both.scores(np.array([0]), np.array([1, 0])).tolist() == [[6, 3]]


def test_rows_by_setting_and_parity(
    tiny_encoder: Encoders, examples: list[ShortTermExample]
) -> None:
    rows = evaluate_short_term({"x": tiny_encoder(EncoderKind.TRIPLE)}, examples)
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
    assert eq_4.outcomes
    assert ranks[""] == pytest.approx(eq_4.outcomes.mean)


def test_what_sees_no_goal_stands_in_the_same_table(
    tiny_encoder: Encoders, examples: list[ShortTermExample]
) -> None:
    rows = evaluate_short_term({"x": tiny_encoder(EncoderKind.CURVED)}, examples)
    assert [row.system for row in rows] == [
        *("random", "BM25", "BM25, no goal"),
        *("x · CCL", "x · CCL + 0.5 · CCL"),
        *("x · CCL, no goal", "x · CCL, last utterance, no goal"),
    ]
    assert all(row.ms_per_context > 0 for row in rows)


def test_bm25_looks_for_the_words_of_the_goal() -> None:
    said = [Utterance("A", "hello"), Utterance("B", "a lamp"), Utterance("A", "the lamp")]
    example = ShortTermExample((said[0],), ("a train", "hello"), said[1], said[2], 1)
    rows = {row.system: row.metrics for row in evaluate_short_term({}, [example])}
    assert rows["BM25"]["average_rank"] == 1
    assert rows["BM25, no goal"]["average_rank"] == 2.5


def test_the_quick_average_ranks_are_those_of_the_whole_evaluation(
    tiny_encoder: Encoders, examples: list[ShortTermExample]
) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    whole = {row.system: row for row in evaluate_short_term({"x": encoder}, examples)}
    rank = short_term_average_rank(encoder, examples)
    assert rank == pytest.approx(whole["x · eq. 4"].metrics["average_rank"])
