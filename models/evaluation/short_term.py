"""Short-term planning (CCL section 5, C3L section 5): which reply leads toward a goal.

A system scores each candidate by how well it leads to an utterance some turns ahead. The reply
that was really said, and did lead there, should come first.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.bm25 import BM25
from turnwise.models.evaluation.metrics import (
    Metrics,
    Places,
    Ranks,
    Scores,
    average_settings,
    median_ms,
    ranks_of,
    sample,
)
from turnwise.models.evaluation.ranking_examples import RankingExample, RankingSet, ranking_set
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.short_term_examples import ShortTermExample
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.evaluation.split import VectorTable, candidate_inputs, context_inputs
from turnwise.models.evaluation.systems import (
    System,
    example_ms,
    lexical_systems,
    one_by_one,
    recommended,
    retrieval_systems,
    scores_of,
)
from turnwise.models.roles import EncoderKind, Role, RoleText, relation_to
from turnwise.models.scores import reachability

HITS = (5, 10, 25, 50)
FIT_WEIGHT = 0.5
"""Weight of the next-utterance score beside the score toward the goal, as in `/rank`."""


def evaluate_short_term(
    encoders: Mapping[str, UtteranceEncoder], examples: Sequence[ShortTermExample]
) -> list[Row]:
    """Evaluate all systems of the encoders, after random and BM25.

    Beside the systems that score toward the goal stand those of next-utterance selection, which
    read the context alone ("no goal"): the difference is the worth of the goal. The last system
    toward the goal also stands there with `FIT_WEIGHT` of the next-utterance score that the model
    card recommends.

    Args:
        encoders: By their names in the table.
        examples: The examples, at least one.

    Returns:
        A row a system: Hits@5/10/25/50 and the average rank of the true reply among it and the
        candidates, by length of the context and goal distance, over odd and over even distances,
        and over all; and the median milliseconds to encode the new texts of an example and to
        score it.
    """
    data = without_goals(examples)
    settings = np.array([_setting(len(e.context), e.goal_distance) for e in examples])
    result = []
    for system, ms in _systems(encoders, examples, data):
        of_true = _ranks(system, data)
        metrics, own = _metrics(of_true, examples), example_ms(system, data.candidates)
        outcomes = Outcomes(of_true.expected, settings, data.split.dialogues)
        result.append(Row(system.name, metrics, ms + own, outcomes))
    return result


def short_term_average_rank(
    encoder: UtteranceEncoder, examples: Sequence[ShortTermExample]
) -> dict[str, float]:
    """Return the average rank of each system toward the goal: fast enough for training."""
    data = without_goals(examples)
    return {
        system.name: _metrics(_ranks(system, data), examples)["average_rank"]
        for system in goal_systems(encoder, examples, data)
    }


def without_goals(examples: Sequence[ShortTermExample]) -> RankingSet:
    """Return the examples as response selection: the true reply stands first."""
    asked = [
        RankingExample(
            context=example.context,
            speaker=example.true.speaker,
            candidates=(example.true.text, *example.candidates),
            labels=(1, *(0 for _ in example.candidates)),
        )
        for example in examples
    ]
    return ranking_set(asked, [""] * len(asked))


def goal_systems(
    encoder: UtteranceEncoder, examples: Sequence[ShortTermExample], data: RankingSet
) -> list[System]:
    """Return the systems of an encoder that score toward the goal.

    Those are cos(candidate, goal), and for an encoder with pairs C3L eq. 4 as well. They score the
    candidates of an example alone.
    """
    paired = encoder.kind.paired
    pool = data.split.pool
    goals = [candidate_inputs([example.goal.text]) for example in examples]
    contexts = [_first_inputs(example) if paired else [] for example in examples]
    said = [
        _reply_inputs(e, (pool[p] for p in own))
        for e, own in zip(examples, data.candidates, strict=True)
    ]
    parts = (*said, *goals, *contexts)
    table = VectorTable(encoder, [item for part in parts for item in part])

    def cosine(n: int, candidates: Places) -> Scores:
        second = table[_reply_inputs(examples[n], (pool[place] for place in candidates))]
        scores: Scores = second @ table[goals[n]][0]
        return scores

    def eq_4(n: int, candidates: Places) -> Scores:
        second = table[_reply_inputs(examples[n], (pool[place] for place in candidates))]
        return reachability(table[contexts[n]], second, table[goals[n]])[:, 0]

    def encode(n: int) -> VectorTable:
        return VectorTable(encoder, [*said[n], *goals[n]])

    def encode_pairs(n: int) -> VectorTable:
        return VectorTable(encoder, [*said[n], *goals[n], *contexts[n][-1:]])

    if paired:
        pairs = System("eq. 4", one_by_one(eq_4), encode_pairs)
        return [System("bi-encoder", one_by_one(cosine), encode), pairs]
    name = "cosine to goal" if encoder.kind is EncoderKind.SINGLE else "CCL"
    return [System(name, one_by_one(cosine), encode)]


def _systems(
    encoders: Mapping[str, UtteranceEncoder],
    examples: Sequence[ShortTermExample],
    data: RankingSet,
) -> Iterator[tuple[System, float]]:
    """Yield each system with the milliseconds that it shares with others, which are timed once."""
    random, bm25 = lexical_systems(data.split)
    yield random, 0.0
    yield _goal_overlap(examples, data), 0.0
    yield replace(bm25, name="BM25, no goal"), 0.0
    for label, encoder in encoders.items():
        toward = goal_systems(encoder, examples, data)
        systems, ms = retrieval_systems(encoder, data.split), _candidates_ms(encoder, data)
        for system in toward:
            yield replace(system, name=f"{label} · {system.name}"), 0.0
        both = weighted(toward[-1], recommended(systems, encoder.aggregation))
        yield replace(both, name=f"{label} · {both.name}"), ms
        for system in systems:
            yield replace(system, name=f"{label} · {system.name}, no goal"), ms


def _goal_overlap(examples: Sequence[ShortTermExample], data: RankingSet) -> System:
    index = BM25(data.split.pool)

    def score(n: int, candidates: Places) -> Scores:
        return index.scores(examples[n].goal.text)[candidates]

    return System("BM25", one_by_one(score))


def weighted(toward: System, fit: System) -> System:
    """Return the score toward the goal plus `FIT_WEIGHT` times the next-utterance score."""

    def scores(contexts: Places, candidates: Places) -> Scores:
        fits = np.float32(FIT_WEIGHT) * fit.scores(contexts, candidates)
        total: Scores = toward.scores(contexts, candidates) + fits
        return total

    def work(place: int) -> None:
        toward.work(place)
        fit.work(place)

    return System(f"{toward.name} + {FIT_WEIGHT} · {fit.name}", scores, work)


def _candidates_ms(encoder: UtteranceEncoder, data: RankingSet) -> float:
    """Return the median milliseconds to encode an example's candidates as they are said next."""

    def encode(place: int) -> None:
        texts = [data.split.pool[candidate] for candidate in data.candidates[place]]
        encoder.encode(texts, Role.AFTER)

    return median_ms(encode, sample(len(data.candidates)))


def _reply_inputs(example: ShortTermExample, texts: Iterable[str]) -> list[RoleText]:
    relation = relation_to(example.true.speaker, example.goal.speaker)
    return [RoleText(text, Role.SECOND, relation) for text in texts]


def _first_inputs(example: ShortTermExample) -> list[RoleText]:
    return context_inputs(example.context, example.goal.speaker, Role.FIRST)


def _setting(h: int, d: int) -> str:
    return f"h={h} d={d}"


def _ranks(system: System, data: RankingSet) -> Ranks:
    scores = (scores_of(system, n, own) for n, own in enumerate(data.candidates))
    return ranks_of(scores, [0] * len(data.candidates))


def _metrics(of_true: Ranks, examples: Sequence[ShortTermExample]) -> Metrics:
    settings = sorted({(len(e.context), e.goal_distance) for e in examples})
    by_setting = {}
    for h, d in settings:
        here = np.array([len(e.context) == h and e.goal_distance == d for e in examples])
        chosen = of_true[here]
        by_setting[_setting(h, d)] = {
            "average_rank": float(chosen.expected.mean()),
            **chosen.hits(HITS),
        }
    metrics = average_settings(by_setting)
    for parity, name in enumerate(("even", "odd")):
        those = {_setting(h, d): by_setting[_setting(h, d)] for h, d in settings if d % 2 == parity}
        means = average_settings(those).items()
        metrics |= {f"{key}/{name}": value for key, value in means if "/" not in key}
    return metrics
