import numpy as np
import pytest

from tests.unit.models.conftest import Encoders
from tests.unit.models.evaluation.conftest import cosines
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.long_term import (
    ORDERS,
    GoalSet,
    Setting,
    asked_goals,
    evaluate_long_term,
    goal_pulls,
    greedy_metrics,
    long_term_average_rank,
    make_goal_sets,
    order_metrics,
)
from turnwise.models.evaluation.split import encode_split
from turnwise.models.evaluation.systems import linear_systems, pull_system
from turnwise.models.planning import chain_score
from turnwise.models.roles import EncoderKind


def test_goals_stand_at_a_fixed_distance(dialogues: list[Dialogue]) -> None:
    made = make_goal_sets(dialogues[:1], [Setting(2, 2, 1)])[0]
    said = dialogues[0].utterances
    assert made.context == said[:2]
    assert made.goals == (said[3], said[5], said[7])


def test_a_dialogue_one_distance_longer_than_its_goals_is_long_enough(
    dialogues: list[Dialogue],
) -> None:
    sets = make_goal_sets(dialogues, [Setting(2, 2, 0), Setting(2, 3, 0)])
    lengths = [len(d.utterances) for d in dialogues]
    enough = [sum(n >= 9 for n in lengths), sum(n >= 12 for n in lengths)]
    assert [sum(s.setting.distance == d for s in sets) for d in (2, 3)] == enough
    with pytest.raises(TurnwiseError, match="no dialogue is long enough"):
        make_goal_sets(dialogues, [Setting(9, 2, 0)])


@pytest.mark.parametrize("kind", list(EncoderKind))
def test_the_chain_scores_cosines_from_goal_to_goal(
    kind: EncoderKind, tiny_encoder: Encoders, dialogues: list[Dialogue]
) -> None:
    encoder = tiny_encoder(kind)
    goal_sets = make_goal_sets(dialogues[2:3], [Setting(4, 1, 2)])  # three speakers
    (goals,) = goal_sets
    links = cosines(encoder, goals.goals, goals.goals)
    scores = np.array([chain_score(order, links) for order in ORDERS])
    ties = np.isclose(scores, scores[0], atol=1e-6)  # without roles an order and its reverse tie
    rank = 1 + np.count_nonzero((scores > scores[0]) & ~ties) + (np.count_nonzero(ties) - 1) / 2
    assert long_term_average_rank(encoder, goal_sets) == rank
    rows = {row.system: row.metrics for row in evaluate_long_term({"x": encoder}, goal_sets)}
    assert rows["x · chain"]["average_rank"] == rank


@pytest.mark.parametrize("published", [False, True])
def test_pull_is_half_the_mean_of_two_utterances_and_published_as_a_sum(
    tiny_encoder: Encoders, dialogues: list[Dialogue], *, published: bool
) -> None:
    encoder = tiny_encoder(EncoderKind.CURVED)
    goal_sets = make_goal_sets(dialogues, [Setting(4, 1, 2)])
    split = asked_goals(goal_sets)
    encoded = encode_split(encoder, split)
    found = goal_pulls(linear_systems(encoded)[0] if published else pull_system(encoded), split)
    of_sets = np.stack([cosines(encoder, goals.context, goals.goals) for goals in goal_sets])
    expected = of_sets.sum(1) if published else of_sets[:, -2:].mean(1) / 2
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_curving_counts_the_pull(tiny_encoder: Encoders, dialogues: list[Dialogue]) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    goal_sets = make_goal_sets(dialogues, [Setting(4, 1, 0)])
    expected: dict[str, list[int]] = {
        "chain": [],
        "chain + curving": [],
        "chain + curving, published": [],
    }
    for goals in goal_sets:
        links = cosines(encoder, goals.goals, goals.goals)
        pulls = cosines(encoder, goals.context, goals.goals)
        used = (None, pulls[-2:].mean(0) / 2, pulls.sum(0))
        for ranks, pull in zip(expected.values(), used, strict=True):
            scores = np.array([chain_score(order, links, pull) for order in ORDERS])
            ranks.append(1 + np.count_nonzero(scores > scores[0] + 1e-6))
    rows = {row.system: row.metrics for row in evaluate_long_term({"x": encoder}, goal_sets)}
    means = {name: float(np.mean(ranks)) for name, ranks in expected.items()}
    assert len({*map(tuple, expected.values())}) == 3
    assert {name: rows[f"x · {name}"]["average_rank"] for name in means} == pytest.approx(means)


def test_bm25_links_goals_by_their_words() -> None:
    texts = ["a tram", "which tram", "tram or bus", "late bus", "no"]
    said = tuple(Utterance("AB"[n % 2], text) for n, text in enumerate(texts))
    goals = GoalSet(Setting(1, 1, 0), said[:1], said[1:4])
    rows = {row.system: row.metrics for row in evaluate_long_term({}, [goals])}
    assert rows["BM25 · chain"]["hits@1"] == 1
    assert rows["BM25 · chain"]["average_rank"] == 1.5  # as good as its reverse
    assert rows["BM25 · greedy"]["hits@1"] == 1


def test_hits_leave_the_exact_reverse_out() -> None:
    only_reverse_is_better = np.array([[0.5, 0.1, 0.1, 0.1, 0.1, 0.9]], np.float32)
    found = order_metrics(only_reverse_is_better)
    assert (found["hits@1"], found["hits@1_reverse"]) == (1, 0)
    assert (found["average_rank"], found["average_rank_of_5"]) == (2, 1)


def test_greedy_ranks_the_first_goal() -> None:
    found = greedy_metrics(np.array([[3, 2, 1], [2, 3, 1], [1, 1, 1]], np.float32))
    hits = {"hits@1": (1 + 0 + 1 / 3) / 3, "hits@2": (1 + 1 + 2 / 3) / 3}
    assert found == pytest.approx({"average_rank": (1 + 2 + 2) / 3, **hits})


def test_equal_goals_tie(tiny_encoder: Encoders, dialogues: list[Dialogue]) -> None:
    goals = make_goal_sets(dialogues[:1], [Setting(2, 2, 0)])[0]
    same = GoalSet(goals.setting, goals.context, goals.goals[:1] * 3)
    rows = evaluate_long_term({"x": tiny_encoder(EncoderKind.TRIPLE)}, [same])
    ranks = [row.metrics["average_rank"] for row in rows if "random" not in row.system]
    # BM25, then the model with its pull and seven systems of next-utterance selection
    assert ranks == [3.5, 3.5, 2] + [3.5, 3.5, 3.5] + [2] * 8
