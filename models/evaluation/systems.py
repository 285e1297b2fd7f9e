"""The systems that next-utterance selection compares: each scores contexts against candidates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.bm25 import BM25
from turnwise.models.evaluation.metrics import Places, Scores, median_ms, sample
from turnwise.models.evaluation.split import Context, Split
from turnwise.models.evaluation.vectors import (
    Key,
    VectorTable,
    after_keys,
    context_keys,
    encode_keys,
)
from turnwise.models.roles import EncoderKind, Role
from turnwise.models.scores import Aggregation, max_sim, row, rows, running_query

SHORT_LIST = 1000
"""MaxSim re-ranks this many, the best by the running query; the rest stay behind in its order."""


@dataclass(frozen=True, slots=True)
class System:
    """A way to score.

    Attributes:
        name: As the table shows it, without the model.
        scores: From places of n contexts and of C texts of the pool to (n, C).
        turn: Does once, for one context, what its last utterance costs online: encodes the texts
            that are new with it, one by one, and updates the state. Returns what it worked out.
    """

    name: str
    scores: Callable[[Places, Places], Scores]
    turn: Callable[[int], Float32 | None]


def scores_of(system: System, context: int, candidates: Places) -> Scores:
    """Return the (C,) scores of one context's candidates; equal texts are exact ties."""
    texts, column = np.unique(candidates, return_inverse=True)  # each text is scored once
    scores: Scores = system.scores(np.array([context]), texts)[0, column]
    return scores


def turn_ms(system: System, split: Split, candidates: int) -> float:
    """Return the median milliseconds of a turn, with as many candidates to score."""
    places = np.resize(np.arange(len(split.pool)), candidates)

    def turn(context: int) -> None:
        system.turn(context)
        system.scores(np.array([context]), places)

    return median_ms(turn, sample(len(split.contexts)))


@dataclass(frozen=True, slots=True)
class EncodedSplit:
    """A split in the vectors of one encoder.

    Attributes:
        encoder: The encoder.
        split: What was encoded.
        vectors: (pool, d) of the pool.
        first: For each context its b1 (h, d); (0, d) of an encoder that forms no pairs.
        second: For each context its b2 (h, d), or b of CCL, or the plain vectors.
    """

    encoder: UtteranceEncoder
    split: Split
    vectors: Float32
    first: tuple[Float32, ...]
    second: tuple[Float32, ...]


def encode_split(encoder: UtteranceEncoder, split: Split) -> EncodedSplit:
    """Encode the pool and all contexts, in one call a role."""
    second = [_keys(context, Role.SECOND) for context in split.contexts]
    first = [
        _keys(context, Role.FIRST) if encoder.kind.paired else [] for context in split.contexts
    ]
    after = after_keys(split.pool)
    table = VectorTable(encoder, [*after, *(key for keys in second + first for key in keys)])
    return EncodedSplit(
        encoder=encoder,
        split=split,
        vectors=table[after],
        first=tuple(table[keys] for keys in first),
        second=tuple(table[keys] for keys in second),
    )


def encoder_systems(encoder: UtteranceEncoder, split: Split) -> list[System]:
    """Return all systems of an encoder, by its kind."""
    encoded = encode_split(encoder, split)
    return linear_systems(encoded) + other_systems(encoded)


def recommended(systems: Sequence[System], aggregation: Aggregation) -> System:
    """Return the system of `encoder_systems` that a model's card recommends.

    Where it is not among them, the mean of all rows; an encoder without pairs has one way to fold
    a context up, which stands first.
    """
    names = {"max_sim": "MaxSim", "mean": "mean", "last_rows": _last_rows(aggregation.last_rows)}
    by_name = {system.name: system for system in systems}
    return by_name.get(names[aggregation.name]) or by_name.get("mean", systems[0])


def lexical_systems(split: Split, seed: int = 0) -> list[System]:
    """Return what needs no encoder: random scores, and BM25 with the history as the query."""
    generator = np.random.default_rng(seed)
    index = BM25(split.pool)

    def random(contexts: Places, candidates: Places) -> Scores:
        return generator.random((len(contexts), len(candidates)), np.float32)

    def bm25(contexts: Places, candidates: Places) -> Scores:
        histories = (" ".join(split.contexts[place].texts) for place in contexts)
        return np.stack([index.scores(history)[candidates] for history in histories])

    return [System("random", random, _nothing), System("BM25", bm25, _nothing)]


def linear_systems(encoded: EncodedSplit) -> list[System]:
    """Return the systems whose score is one dot product with a query, by the encoder's kind.

    - triple: the bi-encoder Σ b2_i, the mean over all rows, the last 1..4 rows (C3L eq. 3);
    - curved: CCL, Σ b_i;
    - single: the mean of the context and the last utterance alone.
    """
    if encoded.encoder.kind is EncoderKind.TRIPLE:
        return [_summed(encoded, "bi-encoder"), *_row_systems(encoded)]
    if encoded.encoder.kind is EncoderKind.SINGLE:
        last = np.stack([second[-1] for second in encoded.second])
        alone = linear("last utterance", last, encoded.vectors, _encode_last(encoded, Role.SECOND))
        return [_summed(encoded, "mean of the context"), alone]
    return [_summed(encoded, "CCL")]


def other_systems(encoded: EncodedSplit) -> list[System]:
    """Return what costs more than a query: MaxSim (triple), the whole history as one text."""
    if encoded.encoder.kind is EncoderKind.TRIPLE:
        return [_max_sim_system(encoded)]
    if encoded.encoder.kind is EncoderKind.SINGLE:
        return [_whole_history(encoded)]
    return []


def linear(name: str, queries: Float32, vectors: Float32, turn: Callable[[int], Float32]) -> System:
    """Return a system that scores by dot products of queries (n, d) and the pool's (pool, d)."""

    def scores(contexts: Places, candidates: Places) -> Scores:
        product: Scores = queries[contexts] @ vectors[candidates].T
        return product

    return System(name, scores, turn)


def encode_from_left(encoder: UtteranceEncoder, texts: Sequence[str]) -> Float32:
    """Encode texts without a role, keeping the last tokens of one that is too long; (n, d)."""
    tokenizer = encoder.model.tokenizer
    side = tokenizer.truncation_side
    tokenizer.truncation_side = "left"
    try:
        return encoder.encode(texts, Role.AFTER)
    finally:
        tokenizer.truncation_side = side


def _summed(encoded: EncodedSplit, name: str) -> System:
    queries = np.stack([second.sum(axis=0) for second in encoded.second])
    encode = _encode_last(encoded, Role.SECOND)

    def turn(place: int) -> Float32:
        before: Float32 = encoded.second[place][:-1].sum(axis=0)
        return before + encode(place)

    return linear(name, queries, encoded.vectors, turn)


def _last_rows(n: int) -> str:
    return f"last {n} row{'s' * (n != 1)}"


def _row_systems(encoded: EncodedSplit) -> list[System]:
    of_contexts = [rows(b1, b2) for b1, b2 in zip(encoded.first, encoded.second, strict=True)]
    turn = _row_turn(encoded)

    def system(name: str, last_rows: int | None) -> System:
        queries = np.stack([running_query(rows, last_rows) for rows in of_contexts])
        return linear(name, queries, encoded.vectors, turn)

    last = [system(_last_rows(n), n) for n in (1, 2, 3, 4)]
    return [system("mean", None), *last]


def _max_sim_system(encoded: EncodedSplit) -> System:
    def scores(contexts: Places, candidates: Places) -> Scores:
        vectors = encoded.vectors[candidates]
        return np.stack([_max_sim(encoded.first[c], encoded.second[c], vectors) for c in contexts])

    return System("MaxSim", scores, _row_turn(encoded))


def _max_sim(first: Float32, second: Float32, vectors: Float32) -> Float32:
    if len(vectors) <= SHORT_LIST:
        return max_sim(first, second, vectors)
    by_query = vectors @ Aggregation("max_sim").query(first, second)
    short = np.argpartition(-by_query, SHORT_LIST)[:SHORT_LIST]
    scores: Float32 = by_query - by_query.max() - 2  # below any MaxSim score, at least -1
    scores[short] = max_sim(first, second, vectors[short])
    return scores


def _whole_history(encoded: EncodedSplit) -> System:
    texts = [" ".join(context.texts) for context in encoded.split.contexts]

    def turn(place: int) -> Float32:
        vector: Float32 = encode_from_left(encoded.encoder, [texts[place]])[0]
        return vector

    queries = encode_from_left(encoded.encoder, texts)
    return linear("whole history", queries, encoded.vectors, turn)


def _encode_last(encoded: EncodedSplit, role: Role) -> Callable[[int], Float32]:
    def encode(place: int) -> Float32:
        last = _keys(encoded.split.contexts[place], role)[-1:]
        vector: Float32 = encode_keys(encoded.encoder, last)[0]
        return vector

    return encode


def _row_turn(encoded: EncodedSplit) -> Callable[[int], Float32]:
    """b1 is counted although the service encodes it when idle: it is work all the same."""
    second, first = _encode_last(encoded, Role.SECOND), _encode_last(encoded, Role.FIRST)

    def turn(place: int) -> Float32:
        new = row(encoded.first[place][:-1], second(place))
        first(place)
        return new

    return turn


def _keys(context: Context, role: Role) -> list[Key]:
    return context_keys(context.history, context.target.speaker, role)


def _nothing(_place: int) -> None:
    return None
