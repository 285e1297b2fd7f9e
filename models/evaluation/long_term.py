"""Long-term planning (CCL section 6): put goals into the order in which a dialogue reaches them.

After a context of h utterances, three goals are taken from the dialogue at a fixed distance, the
first of them `first_in` utterances after the context's end. The true order is ranked among all
permutations, by the chain (IEC) and by the chain with the context's pull (IEC & CU). Greedy
curving (GC) ranks the true first goal among the goals.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.bm25 import BM25
from turnwise.models.evaluation.metrics import (
    Metrics,
    Ranks,
    Scores,
    average_settings,
    ranks,
)
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.evaluation.split import Context, Split, VectorTable, encode_split, split_of
from turnwise.models.evaluation.systems import (
    System,
    encoder_systems,
    example_ms,
    lexical_systems,
    precomputed_system,
    pull_system,
    scores_of,
)
from turnwise.models.planning import chain_links, chain_score, plan_chain, plan_greedy
from turnwise.models.roles import Role, RoleText, candidate_inputs, prefix, relation_to

GOALS = 3
ORDERS = tuple(permutations(range(GOALS)))
"""All orders of the goals: the true one is first, its exact reverse is last."""
_DECIMALS = 6  # of float32 cosines; equal goals tie whatever the order of a sum


class Setting(NamedTuple):
    """Length of the context, distance from goal to goal, and utterances before the first goal."""

    context: int
    distance: int
    first_in: int

    def __str__(self) -> str:
        return f"h={self.context} d={self.distance} f={self.first_in}"


SETTINGS = (Setting(2, 2, 0), Setting(2, 2, 1), Setting(2, 2, 2))


@dataclass(frozen=True, slots=True)
class GoalSet:
    """Goals in their true order, after a context; and the id of the dialogue, if it is known."""

    setting: Setting
    context: tuple[Utterance, ...]
    goals: tuple[Utterance, ...]
    dialogue_id: str | None = None


def make_goal_sets(
    dialogues: Iterable[Dialogue], settings: Iterable[Setting] = SETTINGS
) -> list[GoalSet]:
    """Return goals at `context + first_in + distance * j` of each dialogue that is long enough.

    As in CCL's evaluation, a dialogue must be one goal distance longer than the last goal needs, so
    that the same dialogues count.

    Raises:
        TurnwiseError: No dialogue is long enough for any setting.
    """
    dialogues = list(dialogues)
    sets = [
        _make_goal_set(dialogue, setting)
        for setting in settings
        for dialogue in dialogues
        if len(dialogue.utterances) > setting.context + setting.distance * GOALS + setting.first_in
    ]
    if not sets:
        raise TurnwiseError("no dialogue is long enough for these settings")
    return sets


def _make_goal_set(dialogue: Dialogue, setting: Setting) -> GoalSet:
    said = dialogue.utterances
    first = setting.context + setting.first_in
    goals = tuple(said[first + setting.distance * j] for j in range(GOALS))
    return GoalSet(setting, said[: setting.context], goals, dialogue.id)


def evaluate_long_term(
    encoders: Mapping[str, UtteranceEncoder], goal_sets: Sequence[GoalSet]
) -> list[Row]:
    """Evaluate chain, chain + curving and greedy, after random orders and BM25.

    Curving and greedy use the pull P(g), as the service does. Curving has a second row with the
    published pull, the sum over the whole context. Greedy has one more row for each system of
    next-utterance selection, which takes the place of P(g). BM25's pull is its score of the whole
    context.

    Args:
        encoders: The encoders by their names in the table.
        goal_sets: At least one.

    Returns:
        Rows. For orders: `average_rank` of the true order among all permutations;
        `average_rank_of_5` and `hits@1..4` without its exact reverse, as CCL publishes them;
        `hits@1_reverse` against the reverse alone. For greedy: `hits@1..2` and `average_rank` of
        the true first goal among the goals by pull. Each metric by setting and as the mean over
        settings. The median milliseconds are the time to encode the goals, for the pull also the
        last utterance, and to plan.
    """
    settings = np.array([str(goals.setting) for goals in goal_sets])
    split = asked_goals(goal_sets)
    dialogues = split.dialogues[::GOALS]
    result = []
    for system, choice in _systems(encoders, goal_sets, split):
        indices = np.arange(choice.candidates)
        scores = system.scores(np.arange(len(goal_sets)), indices)
        metrics = _measure_by_setting(choice.metrics, scores, goal_sets)
        outcomes = Outcomes(_rank_first(scores).expected, settings, dialogues, choice.candidates)
        ms = example_ms(system, [indices] * len(goal_sets))
        result.append(Row(system.name, metrics, ms, outcomes))
    return result


def long_term_average_rank(encoder: UtteranceEncoder, goal_sets: Sequence[GoalSet]) -> float:
    """Return the average rank of the true order by the chain, mean over settings."""
    scores = _score_by_chain(encoder, goal_sets)
    return _measure_by_setting(order_metrics, scores, goal_sets)["average_rank"]


def chain_outcomes(encoder: UtteranceEncoder, goal_sets: Sequence[GoalSet]) -> Outcomes:
    """Return the rank of each true order by the chain, among all orders."""
    ranked = _rank_first(_score_by_chain(encoder, goal_sets))
    settings = np.array([str(goals.setting) for goals in goal_sets])
    dialogues = asked_goals(goal_sets).dialogues[::GOALS]
    return Outcomes(ranked.expected, settings, dialogues, len(ORDERS))


def _score_by_chain(encoder: UtteranceEncoder, goal_sets: Sequence[GoalSet]) -> Scores:
    return np.stack([_score_orders(links) for links in _compute_links(encoder, goal_sets)])


def order_metrics(scores: Scores) -> Metrics:
    """Return the metrics of (n, n!) scores of `ORDERS`."""
    without_reverse = _rank_first(scores[:, :-1])
    return {
        "average_rank": float(_rank_first(scores).expected.mean()),
        "average_rank_of_5": float(without_reverse.expected.mean()),
        **without_reverse.hits((1, 2, 3, 4)),
        "hits@1_reverse": _rank_first(scores[:, [0, -1]]).hits((1,))["hits@1"],
    }


def greedy_metrics(pull: Scores) -> Metrics:
    """Return the metrics of (n, goals) pulls; the true first goal is in the first column."""
    of_first = _rank_first(pull)
    return {"average_rank": float(of_first.expected.mean()), **of_first.hits((1, 2))}


def _rank_first(scores: Scores) -> Ranks:
    return ranks(scores, np.zeros(len(scores), np.intp))


def asked_goals(goal_sets: Sequence[GoalSet]) -> Split:
    """Return `GOALS` contexts a set, each with a goal as its target, over a pool of all goals."""
    return split_of(
        [Context(each.context, goal, each.dialogue_id) for each in goal_sets for goal in each.goals]
    )


def goal_pulls(system: System, split: Split) -> Scores:
    """Return (N, goals): the score of each goal after the context, said by the goal's speaker."""
    pulls = [scores_of(system, n, split.true[[n]])[0] for n in range(len(split.contexts))]
    return np.array(pulls, np.float32).reshape(-1, GOALS)


class _Choice(NamedTuple):
    """The number of candidates of a choice, the true one first, and the metrics of its scores."""

    candidates: int
    metrics: Callable[[Scores], Metrics]


_ORDER = _Choice(len(ORDERS), order_metrics)
_NEXT_GOAL = _Choice(GOALS, greedy_metrics)


def _systems(
    encoders: Mapping[str, UtteranceEncoder], goal_sets: Sequence[GoalSet], split: Split
) -> Iterator[tuple[System, _Choice]]:
    random = np.random.default_rng(0)
    for name, choice in (("random order", _ORDER), ("random next goal", _NEXT_GOAL)):
        scores = random.random((len(goal_sets), choice.candidates), np.float32)
        yield precomputed_system(name, scores), choice
    yield from _bm25_systems(goal_sets, split)
    for label, encoder in encoders.items():
        yield from _encoded_systems(label, encoder, goal_sets, split)


def _bm25_systems(goal_sets: Sequence[GoalSet], split: Split) -> Iterator[tuple[System, _Choice]]:
    _, bm25 = lexical_systems(split)
    index = BM25(split.pool)

    def link(n: int) -> Float32:
        indices = split.true[GOALS * n : GOALS * (n + 1)]
        return np.stack([index.scores(goal.text)[indices] for goal in goal_sets[n].goals])

    def pull(n: int) -> None:
        for goal in range(GOALS * n, GOALS * (n + 1)):
            scores_of(bm25, goal, split.true[[goal]])

    pulls = precomputed_system("", goal_pulls(bm25, split), pull)
    links = [link(n) for n in range(len(goal_sets))]
    return _planning_systems("BM25", links, link, [pulls], lambda _: None)


def _encoded_systems(
    label: str, encoder: UtteranceEncoder, goal_sets: Sequence[GoalSet], split: Split
) -> Iterator[tuple[System, _Choice]]:
    encoded = encode_split(encoder, split)
    pulls = [
        precomputed_system(
            system.name,
            goal_pulls(system, split),
            partial(_encode_turn, encoder, system, goal_sets),
        )
        for system in [pull_system(encoded), *encoder_systems(encoded)]
    ]
    return _planning_systems(
        label,
        _compute_links(encoder, goal_sets),
        lambda n: VectorTable(encoder, _chain_inputs(goal_sets[n])),
        pulls,
        lambda n: VectorTable(encoder, _goal_inputs(goal_sets[n])),
    )


def _encode_turn(
    encoder: UtteranceEncoder, system: System, goal_sets: Sequence[GoalSet], n: int
) -> None:
    """Do the work of a turn once for each prefix with which the goals read the last utterance.

    An encoder with speaker tokens reads it differently for a goal of another speaker.
    """
    last = goal_sets[n].context[-1].speaker
    goal_by_prefix: dict[str, int] = {}
    for index, goal in enumerate(goal_sets[n].goals):
        relation = relation_to(last, goal.speaker)
        goal_by_prefix[prefix(encoder.kind, Role.SECOND, relation)] = GOALS * n + index
    for context in goal_by_prefix.values():
        system.work(context)


def _planning_systems(
    label: str,
    links: Sequence[Float32],
    encode_links: Callable[[int], object],
    pulls: Sequence[System],
    encode_goals: Callable[[int], object],
) -> Iterator[tuple[System, _Choice]]:
    """Yield chain, chain + curving and greedy.

    Args:
        label: The model's name in the table.
        links: (goals, goals) of each set.
        encode_links: Encodes the goals of a set for the links, or scores these.
        pulls: Systems that score the goals of a set (N, goals): the pull, then the published one.
        encode_goals: Encodes the goals of a set for the pull alone.
    """
    tables = [pull.scores(np.arange(len(links)), np.arange(GOALS)) for pull in pulls]

    def chain(n: int) -> None:
        encode_links(n)
        plan_chain(links[n])

    def chain_and_curve(pull: System, table: Scores, n: int) -> None:
        encode_links(n)
        pull.work(n)
        plan_chain(links[n], table[n])

    def choose(pull: System, table: Scores, n: int) -> None:
        encode_goals(n)
        pull.work(n)
        plan_greedy(table[n])

    by_chain = np.stack([_score_orders(linked) for linked in links])
    yield precomputed_system(f"{label} · chain", by_chain, chain), _ORDER
    for suffix, pull, table in zip(("", ", published"), pulls, tables, strict=False):
        by_both = np.stack(list(map(_score_orders, links, table)))
        name = f"{label} · chain + curving{suffix}"
        yield precomputed_system(name, by_both, partial(chain_and_curve, pull, table)), _ORDER
    names = [f"{label} · greedy", *(f"{label} · greedy, {pull.name}" for pull in pulls[1:])]
    for name, pull, table in zip(names, pulls, tables, strict=True):
        yield replace(pull, name=name, work=partial(choose, pull, table)), _NEXT_GOAL


def _score_orders(links: Float32, pull: Scores | None = None) -> Scores:
    scores = [chain_score(order, links, pull) for order in ORDERS]
    return np.round(scores, _DECIMALS).astype(np.float32)


def _measure_by_setting(
    metrics: Callable[[Scores], Metrics], scores: Scores, goal_sets: Sequence[GoalSet]
) -> Metrics:
    settings = [str(goals.setting) for goals in goal_sets]
    return average_settings(
        {
            setting: metrics(scores[np.array(settings) == setting])
            for setting in dict.fromkeys(settings)
        }
    )


def _compute_links(encoder: UtteranceEncoder, goal_sets: Sequence[GoalSet]) -> list[Float32]:
    """Return the links (goals, goals) of each set."""
    table = VectorTable(encoder, [item for goals in goal_sets for item in _chain_inputs(goals)])

    def links(goals: GoalSet) -> Float32:
        before = table[_before_inputs(goals)].reshape(GOALS, GOALS, -1)
        return chain_links(before, table[_goal_inputs(goals)])

    return [links(goals) for goals in goal_sets]


def _chain_inputs(goals: GoalSet) -> list[RoleText]:
    return _before_inputs(goals) + _goal_inputs(goals)


def _before_inputs(goals: GoalSet) -> list[RoleText]:
    return [
        RoleText(x.text, Role.SECOND, relation_to(x.speaker, y.speaker))
        for x in goals.goals
        for y in goals.goals
    ]


def _goal_inputs(goals: GoalSet) -> list[RoleText]:
    return candidate_inputs(goal.text for goal in goals.goals)
