"""Systems: everything that scores candidates, as one type for all tasks."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.bm25 import BM25
from turnwise.models.evaluation.metrics import Indices, Scores, median_ms
from turnwise.models.evaluation.split import (
    Context,
    EncodedSplit,
    Split,
    encode_split,
)
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.planning import pull_query
from turnwise.models.roles import EncoderKind, Role
from turnwise.models.scores import Aggregation, max_sim, row, rows, running_query
from turnwise.models.texts import write_count

SHORT_LIST = 100
"""Candidates that a re-ranker orders, as many as in the service by default."""
MAX_SIM_LIST = 1000
"""Candidates that MaxSim scores, the best by the running query. The others follow in order."""


@dataclass(frozen=True, slots=True)
class System:
    """Scores the candidates of a task's examples.

    An example is a context, a goal set or a text to compare; a candidate is a reply, an order of
    goals or another text. Both are named by their indices in the task's data.

    Attributes:
        name: As the table shows it, without the model.
        scores: Takes indices of n examples and of C candidates; returns (n, C), higher is better.
        work: Does the other work that an example costs online: it encodes the example's new texts,
            one by one, and updates the state. It is only timed; its result is not used.
    """

    name: str
    scores: Callable[[Indices, Indices], Scores]
    work: Callable[[int], object] = lambda _: None


def scores_of(system: System, example: int, candidates: Indices) -> Scores:
    """Return the (C,) scores of one example's candidates; equal indices are exact ties."""
    distinct, column = np.unique(candidates, return_inverse=True)  # each is scored once
    scores: Scores = system.scores(np.array([example]), distinct)[0, column]
    return scores


def example_ms(system: System, candidates: Sequence[Indices]) -> float:
    """Return the median milliseconds of an example.

    Args:
        system: The system.
        candidates: For each example the indices of its candidates.
    """

    def online(example: int) -> None:
        system.work(example)
        system.scores(np.array([example]), candidates[example])

    return median_ms(online, len(candidates))


def turn_ms(system: System, split: Split, candidates: int) -> float:
    """Return the median milliseconds of a turn, with this many candidates to score."""
    indices = np.resize(np.arange(len(split.pool)), candidates)
    return example_ms(system, [indices] * len(split.contexts))


def one_by_one(score: Callable[[int, Indices], Scores]) -> Callable[[Indices, Indices], Scores]:
    """Return the scores of a system that scores one example (C,) at a time."""

    def scores(examples: Indices, candidates: Indices) -> Scores:
        return np.stack([score(int(example), candidates) for example in examples])

    return scores


def linear_system(
    name: str, queries: Float32, vectors: Float32, work: Callable[[int], object]
) -> System:
    """Return a system of dot products: queries (n, d) of examples, vectors (C, d) of candidates."""

    def scores(examples: Indices, candidates: Indices) -> Scores:
        product: Scores = queries[examples] @ vectors[candidates].T
        return product

    return System(name, scores, work)


def precomputed_system(
    name: str, table: Scores, work: Callable[[int], object] = lambda _: None
) -> System:
    """Return a system whose scores (examples, candidates) are computed beforehand."""

    def scores(examples: Indices, candidates: Indices) -> Scores:
        return table[np.ix_(examples, candidates)]

    return System(name, scores, work)


def lexical_systems(split: Split) -> list[System]:
    """Return the systems without a model: random scores, and BM25 with the context as the query."""
    generator = np.random.default_rng(0)
    index = BM25(split.pool)

    def random(contexts: Indices, candidates: Indices) -> Scores:
        return generator.random((len(contexts), len(candidates)), np.float32)

    def bm25(context: int, candidates: Indices) -> Scores:
        return index.scores(" ".join(split.contexts[context].texts))[candidates]

    return [System("random", random), System("BM25", one_by_one(bm25))]


def retrieval_systems(
    model: UtteranceEncoder | PairwiseModel, split: Split, *, parts: bool
) -> list[System]:
    """Return all systems of a model that encodes candidates beforehand.

    With `parts`, also those of `part_systems`.
    """
    if isinstance(model, PairwiseModel):
        return [pairwise_system(model, split)]
    encoded = encode_split(model, split)
    return encoder_systems(encoded) + (part_systems(encoded) if parts else [])


def encoder_systems(encoded: EncodedSplit) -> list[System]:
    """Return all systems of an encoder."""
    return linear_systems(encoded) + other_systems(encoded)


def recommended_system(encoded: EncodedSplit, aggregation: Aggregation) -> System:
    """Return the system of an encoder with an aggregation, such as that of its model card.

    For an encoder without pairs, which has one aggregation, it is the first linear system.
    """
    if not encoded.encoder.kind.paired:
        return linear_systems(encoded)[0]
    if aggregation.name == "max_sim":
        return _max_sim_system(encoded)
    return retriever_system(encoded, aggregation)


def retriever_system(encoded: EncodedSplit, aggregation: Aggregation) -> System:
    """Return the running-query system of an encoder with pairs, which finds the short list.

    It sums the rows that the aggregation counts, or all rows for MaxSim, which has no query.
    """
    (system,) = _row_systems(encoded, [aggregation.summed])
    return system


def pull_system(encoded: EncodedSplit) -> System:
    """Return the system that scores goals by their pull P(g)."""
    queries = np.stack([pull_query(second) for second in encoded.second])
    return linear_system("pull", queries, encoded.vectors, _encode_last(encoded, Role.SECOND))


def linear_systems(encoded: EncodedSplit) -> list[System]:
    """Return the systems whose score is one dot product with a query, by the encoder's kind.

    - triple and heads: the bi-encoder Σ b2_i, the mean over all rows, the last 1..4 rows (C3L
      eq. 3);
    - curved: CCL, Σ b_i, and its last utterance alone, b_n (CCL section 5);
    - single: the mean of the context and the last utterance alone.
    """
    if encoded.encoder.kind.paired:
        return [_sum_system(encoded, "bi-encoder"), *_row_systems(encoded, [None, 1, 2, 3, 4])]
    if encoded.encoder.kind is EncoderKind.SINGLE:
        return [
            _sum_system(encoded, "mean of the context"),
            _last_system(encoded, "last utterance"),
        ]
    return [_sum_system(encoded, "CCL"), _last_system(encoded, "CCL, last utterance")]


def part_systems(encoded: EncodedSplit) -> list[System]:
    """Return the systems of an encoder with pairs that show what its parts do (C3L, Table 5).

    They are direct neighbours, the pairs (i, i + 1) alone; [B1], Σ b1_i, as the bi-encoder is
    Σ b2_i; both roles as single vectors, Σ (b1_i + b2_i), which is also one mixture of the whole
    context; and the mean over all rows plus the bi-encoder. An encoder without pairs has none.
    """
    if not encoded.encoder.kind.paired:
        return []
    neighbours = [_neighbour_query(*each) for each in encoded.to_mix]
    first = [b1.sum(axis=0) for b1 in encoded.first]
    second = [b2.sum(axis=0) for b2 in encoded.second]
    pairs = [running_query(rows(*each)) for each in encoded.to_mix]
    turn = _row_turn(encoded)
    queries = {
        "direct neighbours": neighbours,
        "[B1] alone": first,
        "[B1] + [B2]": [b1 + b2 for b1, b2 in zip(first, second, strict=True)],
        "mean + bi-encoder": [both + b2 for both, b2 in zip(pairs, second, strict=True)],
    }
    return [
        linear_system(name, np.stack(of), encoded.vectors, turn) for name, of in queries.items()
    ]


def _neighbour_query(first: Float32, second: Float32) -> Float32:
    """Return the sum (d,) of the unit mixtures of neighbours; b2 of a single utterance."""
    mixtures = [row(b1[None], b2) for b1, b2 in zip(first[:-1], second[1:], strict=True)]
    query: Float32 = np.stack(mixtures or [second[0]]).sum(axis=0)
    return query


def other_systems(encoded: EncodedSplit) -> list[System]:
    """Return the systems that cost more: MaxSim (with pairs), the whole context as one text."""
    if encoded.encoder.kind.paired:
        return [_max_sim_system(encoded)]
    if encoded.encoder.kind is EncoderKind.SINGLE:
        return [_whole_history_system(encoded)]
    return []


def pairwise_system(model: PairwiseModel, split: Split) -> System:
    """Return the pairwise model as a system; a turn embeds the newest utterance alone."""
    texts = list(dict.fromkeys(text for context in split.contexts for text in context.texts))
    index_of = {text: index for index, text in enumerate(texts)}
    embedded = model.embed(texts)

    def vectors(context: Context) -> Float32:
        return embedded[[index_of[text] for text in context.texts]]

    def turn(number: int) -> Float32:
        context = split.contexts[number]
        newest = model.embed(context.texts[-1:])
        return model.project_context(np.concatenate([vectors(context)[:-1], newest]))

    queries = np.stack([model.project_context(vectors(context)) for context in split.contexts])
    return linear_system("pairwise", queries, model.encode_responses(split.pool), turn)


def reading_system(
    name: str, score: Callable[[Context, Sequence[str]], Scores], split: Split
) -> System:
    """Return a system that reads the context again with each candidate.

    Args:
        name: Its name.
        score: Takes a context and the texts of C candidates; returns (C,).
        split: The contexts and the pool.
    """

    def one(context: int, candidates: Indices) -> Scores:
        return score(split.contexts[context], [split.pool[index] for index in candidates])

    return System(name, one_by_one(one))


def reranked_system(first: System, second: System, length: int = SHORT_LIST) -> System:
    """Return a system that orders the short list of a first one by a second one.

    The second system scores only the `length` best candidates of the first. The others follow, in
    the order of the first.
    """

    def one(example: int, candidates: Indices) -> Scores:
        by_first = first.scores(np.array([example]), candidates)[0]
        short = np.argsort(-by_first, kind="stable")[:length]
        by_second = second.scores(np.array([example]), candidates[short])[0]
        final: Scores = by_first - by_first[short].min() + by_second.min() - 1
        final[short] = by_second
        return final

    return System(f"{first.name} + {second.name}", one_by_one(one), first.work)


def encode_from_left(encoder: UtteranceEncoder, texts: Sequence[str]) -> Float32:
    """Encode texts without a role, keeping the last tokens of one that is too long; (n, d)."""
    tokenizer = encoder.model.tokenizer
    side = tokenizer.truncation_side
    tokenizer.truncation_side = "left"
    try:
        return encoder.encode(texts, Role.AFTER)
    finally:
        tokenizer.truncation_side = side


def _sum_system(encoded: EncodedSplit, name: str) -> System:
    queries = np.stack([second.sum(axis=0) for second in encoded.second])
    encode = _encode_last(encoded, Role.SECOND)

    def turn(index: int) -> Float32:
        before: Float32 = encoded.second[index][:-1].sum(axis=0)
        return before + encode(index)

    return linear_system(name, queries, encoded.vectors, turn)


def _last_system(encoded: EncodedSplit, name: str) -> System:
    queries = np.stack([second[-1] for second in encoded.second])
    return linear_system(name, queries, encoded.vectors, _encode_last(encoded, Role.SECOND))


def _row_systems(encoded: EncodedSplit, counts: Iterable[int | None]) -> list[System]:
    """Return a system for each number of last rows; None for the mean of all rows."""
    of_contexts = [rows(b1, b2) for b1, b2 in encoded.to_mix]
    turn = _row_turn(encoded)

    def system(n: int | None) -> System:
        name = "mean" if n is None else f"last {write_count(n, 'row')}"
        queries = np.stack([running_query(of_context, n) for of_context in of_contexts])
        return linear_system(name, queries, encoded.vectors, turn)

    return list(map(system, counts))


def _max_sim_system(encoded: EncodedSplit) -> System:
    def one(context: int, candidates: Indices) -> Scores:
        return max_sim(*encoded.to_mix[context], encoded.vectors[candidates])

    first = retriever_system(encoded, Aggregation("max_sim"))
    system = reranked_system(first, System("MaxSim", one_by_one(one)), MAX_SIM_LIST)
    return replace(system, name="MaxSim")


def _whole_history_system(encoded: EncodedSplit) -> System:
    texts = [" ".join(context.texts) for context in encoded.split.contexts]

    def turn(index: int) -> Float32:
        vector: Float32 = encode_from_left(encoded.encoder, [texts[index]])[0]
        return vector

    queries = encode_from_left(encoded.encoder, texts)
    return linear_system("whole history", queries, encoded.vectors, turn)


def _encode_last(encoded: EncodedSplit, role: Role) -> Callable[[int], Float32]:
    def encode(index: int) -> Float32:
        last = encoded.split.contexts[index].inputs(role)[-1:]
        vector: Float32 = encoded.encoder.encode_in_roles(last)[0]
        return vector

    return encode


def _row_turn(encoded: EncodedSplit) -> Callable[[int], Float32]:
    """Return the work of a turn, with the pass for b1, which the service makes when it is idle."""
    first = _encode_last(encoded, Role.FIRST)
    second = _encode_last(encoded, Role.SECOND)

    def turn(index: int) -> Float32:
        new = row(encoded.first[index][:-1], second(index))
        if encoded.encoder.kind.encodes_first:
            first(index)
        return new

    return turn
