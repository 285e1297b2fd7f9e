"""Long-term planning (CCL section 6): put goals into the order in which a dialogue reaches them.

After a history of h utterances, three goals are taken from the dialogue at a fixed distance, the
first of them `first_in` utterances after the history's end. The true order is ranked among all
permutations, by the chain (IEC), the chain with the history's pull (IEC & CU), and greedily (GC),
where only the next goal is asked for.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from models.encoder import UtteranceEncoder
from models.evaluation.goals import GOALS, GoalSet, Setting
from models.evaluation.metrics import (
    Metrics,
    Places,
    Scores,
    average_settings,
    hits,
    median_ms,
    ranks,
    sample,
)
from models.evaluation.report import Row
from models.evaluation.vectors import Float32, Key, VectorTable, after_keys, context_keys
from models.planning import chain_score, plan_chain, plan_greedy
from models.roles import Role, relation_to

ORDERS = tuple(permutations(range(GOALS)))
"""All orders of the goals: the true one stands first, its exact reverse last."""
_DECIMALS = 6  # of float32 cosines; equal goals tie whatever the order of a sum


def evaluate_long_term(
    encoders: Mapping[str, UtteranceEncoder], goal_sets: Sequence[GoalSet]
) -> list[Row]:
    """Evaluate chain, chain + curving and greedy with each encoder, after random orders.

    Args:
        encoders: By their names in the table.
        goal_sets: At least one.

    Returns:
        Rows. For orders: `hits@1..4` of the true order among all permutations but its exact
        reverse, `hits@1_reverse` against the reverse alone, `average_rank` among all permutations.
        For greedy: `hits@1` and `average_rank` of the true first goal among the goals by pull.
        By setting and as the mean over settings; with median milliseconds to encode the goals,
        and for the pull the last utterance, and to plan.
    """
    of_setting = _settings(goal_sets)
    random = np.random.default_rng(0)
    by_chance = random.random((len(goal_sets), len(ORDERS)), np.float32)
    pulled = random.random((len(goal_sets), GOALS), np.float32)
    result = [
        Row("random order", _by_setting(order_metrics, by_chance, of_setting), 0.0),
        Row("random next goal", _by_setting(greedy_metrics, pulled, of_setting), 0.0),
    ]
    for label, encoder in encoders.items():
        table = VectorTable(encoder, [key for goals in goal_sets for key in _all_keys(goals)])
        for method in _methods(goal_sets, table):
            metrics = _by_setting(method.metrics, method.scores, of_setting)
            cost = _milliseconds(method, encoder, goal_sets)
            result.append(Row(f"{label} · {method.name}", metrics, cost))
    return result


def long_term_average_rank(encoder: UtteranceEncoder, goal_sets: Sequence[GoalSet]) -> float:
    """Return the average rank of the true order by the chain, mean over settings."""
    table = VectorTable(encoder, [key for goals in goal_sets for key in _all_keys(goals)])
    scores = np.stack([_order_scores(links(goals, table)) for goals in goal_sets])
    return _by_setting(order_metrics, scores, _settings(goal_sets))["average_rank"]


def order_metrics(scores: Scores) -> Metrics:
    """Return what is reported of (n, n!) scores of `ORDERS`."""
    true = np.zeros(len(scores), np.intp)
    return {
        "average_rank": float(ranks(scores, true).mean()),
        **hits(ranks(scores[:, :-1], true), (1, 2, 3, 4)),
        "hits@1_reverse": hits(ranks(scores[:, [0, -1]], true), (1,))["hits@1"],
    }


def greedy_metrics(pull: Scores) -> Metrics:
    """Return what is reported of (n, goals) pulls, the true first goal standing first."""
    of_first = ranks(pull, np.zeros(len(pull), np.intp))
    return {"average_rank": float(of_first.mean()), **hits(of_first, (1,))}


def links(goals: GoalSet, table: VectorTable) -> Float32:
    """Return (goals, goals) cos(b_x, a_y), b_x with its relation to the speaker of y."""
    after = table[after_keys(goal.text for goal in goals.goals)]
    before = table[_link_keys(goals)].reshape(GOALS, GOALS, -1)
    linked: Float32 = np.einsum("xyd,yd->xy", before, after)
    return linked


def pull(goals: GoalSet, table: VectorTable) -> Float32:
    """Return (goals,) P(g) = Σ_i cos(b_i, a_g), b_i with its relation to the speaker of g."""
    after = table[after_keys(goal.text for goal in goals.goals)]
    queries = [table[keys].sum(axis=0) for keys in _context_keys(goals)]
    pulls: Float32 = np.einsum("gd,gd->g", np.stack(queries), after)
    return pulls


class _Method(NamedTuple):
    name: str
    scores: Scores
    metrics: Callable[[Scores], Metrics]
    keys: Callable[[GoalSet], list[Key]]
    """The texts that planning is new with online."""
    plan: Callable[[int], object]


def _methods(goal_sets: Sequence[GoalSet], table: VectorTable) -> list[_Method]:
    linked = [links(goals, table) for goals in goal_sets]
    pulls = np.stack([pull(goals, table) for goals in goal_sets])
    chain = np.stack([_order_scores(x) for x in linked])
    curved = np.stack([_order_scores(x, p) for x, p in zip(linked, pulls, strict=True)])
    return [
        _Method("chain", chain, order_metrics, _chain_keys, lambda n: plan_chain(linked[n])),
        _Method(
            "chain + curving",
            curved,
            order_metrics,
            lambda goals: _chain_keys(goals) + _new_keys(goals),
            lambda n: plan_chain(linked[n], pulls[n]),
        ),
        _Method(
            "greedy",
            pulls,
            greedy_metrics,
            lambda goals: _after(goals) + _new_keys(goals),
            lambda n: plan_greedy(pulls[n]),
        ),
    ]


def _milliseconds(
    method: _Method, encoder: UtteranceEncoder, goal_sets: Sequence[GoalSet]
) -> float:
    def work(place: int) -> None:
        VectorTable(encoder, method.keys(goal_sets[place]))
        method.plan(place)

    return median_ms(work, sample(len(goal_sets)))


def _order_scores(links: Float32, pull: Float32 | None = None) -> Scores:
    scores = [chain_score(order, links, pull) for order in ORDERS]
    return np.round(scores, _DECIMALS).astype(np.float32)


def _settings(goal_sets: Sequence[GoalSet]) -> dict[Setting, Places]:
    return {
        setting: np.flatnonzero([goals.setting == setting for goals in goal_sets])
        for setting in dict.fromkeys(goals.setting for goals in goal_sets)
    }


def _by_setting(
    metrics: Callable[[Scores], Metrics], scores: Scores, of_setting: Mapping[Setting, Places]
) -> Metrics:
    return average_settings(
        {str(setting): metrics(scores[places]) for setting, places in of_setting.items()}
    )


def _link_keys(goals: GoalSet) -> list[Key]:
    return [
        (x.text, Role.SECOND, relation_to(x.speaker, y.speaker))
        for x in goals.goals
        for y in goals.goals
    ]


def _after(goals: GoalSet) -> list[Key]:
    return after_keys(goal.text for goal in goals.goals)


def _context_keys(goals: GoalSet) -> list[list[Key]]:
    return [context_keys(goals.context, goal.speaker, Role.SECOND) for goal in goals.goals]


def _chain_keys(goals: GoalSet) -> list[Key]:
    return _link_keys(goals) + _after(goals)


def _new_keys(goals: GoalSet) -> list[Key]:
    return [keys[-1] for keys in _context_keys(goals)]


def _all_keys(goals: GoalSet) -> list[Key]:
    return _chain_keys(goals) + [key for keys in _context_keys(goals) for key in keys]
