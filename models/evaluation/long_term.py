"""Long-term planning (CCL section 6): put goals into the order in which a dialogue reaches them.

After a history of h utterances, three goals are taken from the dialogue at a fixed distance, the
first of them `first_in` utterances after the history's end. The true order is ranked among all
permutations, by the chain (IEC), the chain with the history's pull (IEC & CU), and greedily (GC),
where only the next goal is asked for.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.bm25 import BM25
from turnwise.models.evaluation.long_term_problems import GOALS, GoalSet, Setting
from turnwise.models.evaluation.metrics import (
    Metrics,
    Places,
    Scores,
    average_settings,
    hits,
    median_ms,
    ranks,
    sample,
)
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.split import Context, Split
from turnwise.models.evaluation.systems import System, encoder_systems, lexical_systems, scores_of
from turnwise.models.evaluation.vectors import Key, VectorTable, after_keys
from turnwise.models.planning import chain_links, chain_score, plan_chain, plan_greedy
from turnwise.models.roles import Role, prefix, relation_to

ORDERS = tuple(permutations(range(GOALS)))
"""All orders of the goals: the true one stands first, its exact reverse last."""
_DECIMALS = 6  # of float32 cosines; equal goals tie whatever the order of a sum


def evaluate_long_term(
    encoders: Mapping[str, UtteranceEncoder], goal_sets: Sequence[GoalSet]
) -> list[Row]:
    """Evaluate chain, chain + curving and greedy, random orders and BM25 first.

    The pull of curving and of greedy is P(g); greedy is also tried with all systems of
    next-utterance selection in its place, named after a comma.

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
    for label, source in _sources(encoders, goal_sets):
        for method in _methods(source):
            metrics = _by_setting(method.metrics, method.scores, of_setting)
            cost = median_ms(method.work, sample(len(goal_sets)))
            result.append(Row(f"{label} · {method.name}", metrics, cost))
    return result


def long_term_average_rank(encoder: UtteranceEncoder, goal_sets: Sequence[GoalSet]) -> float:
    """Return the average rank of the true order by the chain, mean over settings."""
    table = VectorTable(encoder, [key for goals in goal_sets for key in _chain_keys(goals)])
    scores = np.stack([_order_scores(link_scores(goals, table)) for goals in goal_sets])
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


def link_scores(goals: GoalSet, table: VectorTable) -> Float32:
    """Return (goals, goals) cos(b_x, a_y), b_x with its relation to the speaker of y."""
    after = table[after_keys(goal.text for goal in goals.goals)]
    before = table[_link_keys(goals)].reshape(GOALS, GOALS, -1)
    return chain_links(before, after)


def asked_goals(goal_sets: Sequence[GoalSet]) -> Split:
    """Return `GOALS` contexts a set, each with a goal as what comes next, over a pool of all."""
    contexts = tuple(Context(goals.context, goal) for goals in goal_sets for goal in goals.goals)
    place = {text: n for n, text in enumerate(dict.fromkeys(c.target.text for c in contexts))}
    return Split(contexts, tuple(place), np.array([place[c.target.text] for c in contexts]))


def goal_pulls(system: System, split: Split) -> Scores:
    """Return (N, goals): how well each goal fits behind the history, as its speaker says it."""
    places = range(len(split.contexts))
    fits = [scores_of(system, n, split.true[n : n + 1])[0] for n in places]
    return np.array(fits, np.float32).reshape(-1, GOALS)


class _Source(NamedTuple):
    """What planning goes by, and the work that this is online.

    The callables take the index of a goal set. They are timed, and what they return is dropped.
    """

    links: Sequence[Float32]
    """(goals, goals) of each set."""
    pulls: Mapping[str, Scores]
    """(N, goals) by the name of a system, P(g) first."""
    encode_links: Callable[[int], object]
    """Encodes the goals, and scores the links where there is no encoder."""
    encode_goals: Callable[[int], object]
    """Encodes the goals for the pull alone."""
    encode_turn: Mapping[str, Callable[[int], object]]
    """Encodes what is new with the last utterance, by the name of a system."""


class _Method(NamedTuple):
    name: str
    metrics: Callable[[Scores], Metrics]
    scores: Scores
    work: Callable[[int], object]


def _sources(
    encoders: Mapping[str, UtteranceEncoder], goal_sets: Sequence[GoalSet]
) -> Iterator[tuple[str, _Source]]:
    split = asked_goals(goal_sets)
    yield "BM25", _lexical(goal_sets, split)
    for label, encoder in encoders.items():
        yield label, _encoded(encoder, goal_sets, split)


def _lexical(goal_sets: Sequence[GoalSet], split: Split) -> _Source:
    _, system = lexical_systems(split)
    index = BM25(split.pool)

    def link(n: int) -> Float32:
        places = split.true[GOALS * n :][:GOALS]
        return np.stack([index.scores(goal.text)[places] for goal in goal_sets[n].goals])

    def fit(n: int) -> None:
        for goal in range(GOALS):
            scores_of(system, GOALS * n + goal, split.true[GOALS * n + goal :][:1])

    return _Source(
        links=[link(n) for n in range(len(goal_sets))],
        pulls={"": goal_pulls(system, split)},
        encode_links=link,
        encode_goals=lambda _: None,
        encode_turn={"": fit},
    )


def _encoded(encoder: UtteranceEncoder, goal_sets: Sequence[GoalSet], split: Split) -> _Source:
    table = VectorTable(encoder, [key for goals in goal_sets for key in _chain_keys(goals)])
    systems = {system.name: system for system in encoder_systems(encoder, split)}

    def turn(system: System, n: int) -> None:
        last = goal_sets[n].context[-1].speaker
        stands = [relation_to(last, goal.speaker) for goal in goal_sets[n].goals]
        prefixes = [prefix(encoder.kind, Role.SECOND, relation) for relation in stands]
        # A goal of another speaker needs other tokens, where the encoder has them.
        for new in dict(zip(prefixes, range(GOALS), strict=True)).values():
            system.turn(GOALS * n + new)

    return _Source(
        links=[link_scores(goals, table) for goals in goal_sets],
        pulls={name: goal_pulls(system, split) for name, system in systems.items()},
        encode_links=lambda n: VectorTable(encoder, _chain_keys(goal_sets[n])),
        encode_goals=lambda n: VectorTable(encoder, _after(goal_sets[n])),
        encode_turn={name: partial(turn, system) for name, system in systems.items()},
    )


def _methods(source: _Source) -> Iterator[_Method]:
    (first, pulled), *others = source.pulls.items()

    def chain(n: int) -> None:
        source.encode_links(n)
        plan_chain(source.links[n])

    def curved(n: int) -> None:
        source.encode_links(n)
        source.encode_turn[first](n)
        plan_chain(source.links[n], pulled[n])

    def greedy(name: str, n: int) -> None:
        source.encode_goals(n)
        source.encode_turn[name](n)
        plan_greedy(source.pulls[name][n])

    by_chain = np.stack([_order_scores(linked) for linked in source.links])
    yield _Method("chain", order_metrics, by_chain, chain)
    both = zip(source.links, pulled, strict=True)
    by_both = np.stack([_order_scores(linked, pull) for linked, pull in both])
    yield _Method("chain + curving", order_metrics, by_both, curved)
    yield _Method("greedy", greedy_metrics, pulled, partial(greedy, first))
    for name, by_name in others:
        yield _Method(f"greedy, {name}", greedy_metrics, by_name, partial(greedy, name))


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


def _chain_keys(goals: GoalSet) -> list[Key]:
    return _link_keys(goals) + _after(goals)
