"""Short-term planning (CCL section 5, C3L section 5): which reply leads toward a goal.

Each candidate is scored by how well it leads to an utterance some turns ahead; the one that was
really said, and did lead there, should come first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.bm25 import BM25
from turnwise.models.evaluation.metrics import (
    Metrics,
    Ranks,
    Scores,
    average_settings,
    hits,
    median_ms,
    ranks,
    sample,
)
from turnwise.models.evaluation.ranking_files import RankingProblem, RankingSet, ranking_set
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.short_term_problems import Problem
from turnwise.models.evaluation.systems import (
    System,
    encoder_systems,
    lexical_systems,
    recommended,
    scores_of,
)
from turnwise.models.evaluation.vectors import Key, VectorTable, after_keys, context_keys
from turnwise.models.roles import EncoderKind, Role, relation_to
from turnwise.models.scores import reachability

HITS = (5, 10, 25, 50)
FIT_WEIGHT = 0.5
"""Weight of the next-utterance score beside the score toward the goal, as in `/rank`."""

Score = Callable[[Problem, VectorTable], Scores]


@dataclass(frozen=True, slots=True)
class GoalSystem:
    """A way to score candidates toward a goal.

    Attributes:
        name: As the table shows it, without the model.
        score: From a problem to (1 + C,): the true one, then the candidates.
        keys: The texts that one problem is new with online: all candidates, the goal and, if the
            score pairs them with the context, its last utterance.
    """

    name: str
    score: Score
    keys: Callable[[Problem], list[Key]]


def evaluate_short_term(
    encoders: Mapping[str, UtteranceEncoder], problems: Sequence[Problem]
) -> list[Row]:
    """Evaluate all systems that the kinds of the encoders give, random and BM25 first.

    Beside what scores toward the goal stand the systems of next-utterance selection, which see the
    context alone ("no goal"): what is gained over them, the goal is worth. The last way toward the
    goal also stands there with `FIT_WEIGHT` of the next-utterance score that the model recommends.

    Args:
        encoders: By their names in the table.
        problems: The problems, at least one.

    Returns:
        A row a system: Hits@5/10/25/50 and the average rank of the true one among it and the
        candidates, by history and goal distance, over odd and over even distances, and over all;
        and the median milliseconds to encode what a problem brings and to score it.
    """
    return [_row(way, problems) for way in _ways(encoders, problems)]


def short_term_average_rank(
    encoder: UtteranceEncoder, problems: Sequence[Problem]
) -> dict[str, float]:
    """Return the average rank of each system of an encoder: quick, for training."""
    table = _table(encoder, problems)
    return {
        system.name: _metrics(problems, _system_ranks(system, problems, table))["average_rank"]
        for system in goal_systems(encoder.kind)
    }


def goal_systems(kind: EncoderKind) -> list[GoalSystem]:
    """Return the ways of a kind: cos(candidate, goal), for a triple encoder also C3L eq. 4."""
    if kind is EncoderKind.TRIPLE:
        return [
            GoalSystem("bi-encoder", _cosine, _cosine_keys),
            GoalSystem("eq. 4", _reachability, _reachability_keys),
        ]
    return [
        GoalSystem("cosine to goal" if kind is EncoderKind.SINGLE else "CCL", _cosine, _cosine_keys)
    ]


def _cosine(problem: Problem, table: VectorTable) -> Scores:
    scores: Scores = table[_candidate_keys(problem)] @ table[after_keys([problem.goal.text])][0]
    return scores


def _reachability(problem: Problem, table: VectorTable) -> Scores:
    first = table[_first_keys(problem)]
    goal = table[after_keys([problem.goal.text])]
    return reachability(first, table[_candidate_keys(problem)], goal)[:, 0]


def _candidate_keys(problem: Problem) -> list[Key]:
    relation = relation_to(problem.true.speaker, problem.goal.speaker)
    return [(text, Role.SECOND, relation) for text in (problem.true.text, *problem.candidates)]


def _first_keys(problem: Problem) -> list[Key]:
    return context_keys(problem.context, problem.goal.speaker, Role.FIRST)


class _Way(NamedTuple):
    name: str
    score: Callable[[int], Scores]
    """From a problem's place to (1 + C,)."""
    encode: Callable[[int], object]
    """Encodes the texts that the problem is new with online."""
    ms: float = 0.0
    """What is timed already, as it is the same for several."""


def _ways(encoders: Mapping[str, UtteranceEncoder], problems: Sequence[Problem]) -> Iterator[_Way]:
    data = _without_goals(problems)
    random, bm25 = lexical_systems(data.split)
    yield _blind("random", random, data)
    yield _overlap(problems, data)
    yield _blind("BM25, no goal", bm25, data)
    for label, encoder in encoders.items():
        table = _table(encoder, problems)
        toward = [_toward(label, s, problems, encoder, table) for s in goal_systems(encoder.kind)]
        systems, ms = encoder_systems(encoder, data.split), _candidates_ms(encoder, data)
        yield from toward
        yield _fitting(toward[-1], recommended(systems, encoder.aggregation), data, ms)
        for system in systems:
            yield _blind(f"{label} · {system.name}, no goal", system, data, ms)


def _overlap(problems: Sequence[Problem], data: RankingSet) -> _Way:
    index = BM25(data.split.pool)

    def score(place: int) -> Scores:
        return index.scores(problems[place].goal.text)[data.candidates[place]]

    return _Way("BM25", score, lambda _: None)


def _toward(
    label: str,
    system: GoalSystem,
    problems: Sequence[Problem],
    encoder: UtteranceEncoder,
    table: VectorTable,
) -> _Way:
    return _Way(
        f"{label} · {system.name}",
        lambda place: system.score(problems[place], table),
        lambda place: VectorTable(encoder, system.keys(problems[place])),
    )


def _blind(name: str, system: System, data: RankingSet, candidates_ms: float = 0.0) -> _Way:
    """Return a system of next-utterance selection, which knows no goal."""

    def score(place: int) -> Scores:
        return scores_of(system, place, data.candidates[place])

    return _Way(name, score, system.turn, candidates_ms)


def _fitting(toward: _Way, fit: System, data: RankingSet, candidates_ms: float) -> _Way:
    """Return what leads toward the goal and fits the context besides."""

    def score(place: int) -> Scores:
        fits = scores_of(fit, place, data.candidates[place])
        scores: Scores = toward.score(place) + np.float32(FIT_WEIGHT) * fits
        return scores

    def encode(place: int) -> None:
        toward.encode(place)
        fit.turn(place)

    return _Way(f"{toward.name} + {FIT_WEIGHT} · {fit.name}", score, encode, candidates_ms)


def _candidates_ms(encoder: UtteranceEncoder, data: RankingSet) -> float:
    """Return the median milliseconds to encode a problem's candidates, as they are said next."""

    def encode(place: int) -> None:
        texts = [data.split.pool[candidate] for candidate in data.candidates[place]]
        encoder.encode(texts, Role.AFTER)

    return median_ms(encode, sample(len(data.candidates)))


def _row(way: _Way, problems: Sequence[Problem]) -> Row:
    def work(place: int) -> None:
        way.encode(place)
        way.score(place)

    of_true = _ranks([way.score(place) for place in range(len(problems))])
    cost = way.ms + median_ms(work, sample(len(problems)))
    return Row(way.name, _metrics(problems, of_true), cost)


def _without_goals(problems: Sequence[Problem]) -> RankingSet:
    """Return the problems as response selection: the true one stands first."""
    asked = [
        RankingProblem(
            context=problem.context,
            speaker=problem.true.speaker,
            candidates=(problem.true.text, *problem.candidates),
            labels=(1, *(0 for _ in problem.candidates)),
        )
        for problem in problems
    ]
    return ranking_set(asked, [""] * len(asked))


def _cosine_keys(problem: Problem) -> list[Key]:
    return [*_candidate_keys(problem), *after_keys([problem.goal.text])]


def _reachability_keys(problem: Problem) -> list[Key]:
    return [*_cosine_keys(problem), *_first_keys(problem)[-1:]]


def _table(encoder: UtteranceEncoder, problems: Sequence[Problem]) -> VectorTable:
    needed = [key for problem in problems for key in _cosine_keys(problem)]
    if encoder.kind is EncoderKind.TRIPLE:
        needed += [key for problem in problems for key in _first_keys(problem)]
    return VectorTable(encoder, needed)


def _system_ranks(system: GoalSystem, problems: Sequence[Problem], table: VectorTable) -> Ranks:
    return _ranks([system.score(problem, table) for problem in problems])


def _ranks(scores: Sequence[Scores]) -> Ranks:
    first = np.zeros(1, np.intp)
    return np.concatenate([ranks(line[None], first) for line in scores])


def _metrics(problems: Sequence[Problem], of_true: Ranks) -> Metrics:
    settings = sorted({(len(p.context), p.goal_distance) for p in problems})
    by_setting = {}
    for h, d in settings:
        here = [len(p.context) == h and p.goal_distance == d for p in problems]
        chosen = of_true[here]
        by_setting[f"h={h} d={d}"] = {
            "average_rank": float(chosen.mean()),
            **hits(chosen, HITS),
        }
    metrics = average_settings(by_setting)
    for parity, name in enumerate(("even", "odd")):
        those = {f"h={h} d={d}": by_setting[f"h={h} d={d}"] for h, d in settings if d % 2 == parity}
        means = average_settings(those).items()
        metrics |= {f"{key}/{name}": value for key, value in means if "/" not in key}
    return metrics
