"""How similar two texts are, alone and as something said in the same context."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.bm25 import words
from turnwise.models.evaluation.similarity_files import Said
from turnwise.models.evaluation.systems import encode_from_left
from turnwise.models.evaluation.vectors import Key, VectorTable, context_keys
from turnwise.models.rerankers import PairwiseModel
from turnwise.models.roles import EncoderKind, Relation, Role
from turnwise.models.scores import row

Similar = Callable[[Sequence[Said], Sequence[Said]], Float32]
Embed = Callable[[Sequence[Said]], Float32]


@dataclass(frozen=True, slots=True)
class Measure:
    """A way to compare what is said.

    Attributes:
        name: As the table shows it, without the model.
        similar: From n texts and n others, each pair with one context, to (n,).
        uses_context: Whether it reads the context.
    """

    name: str
    similar: Similar
    uses_context: bool = False


def word_overlap() -> Measure:
    """Return the share of two texts' distinct words that both have (Jaccard)."""

    def one(first: str, second: str) -> float:
        a, b = set(words(first)), set(words(second))
        return len(a & b) / max(len(a | b), 1)

    def similar(first: Sequence[Said], second: Sequence[Said]) -> Float32:
        pairs = zip(first, second, strict=True)
        return np.array([one(a.text, b.text) for a, b in pairs], np.float32)

    return Measure("word overlap", similar)


def measures(model: UtteranceEncoder | PairwiseModel) -> list[Measure]:
    """Return the cosines that a model's vectors give.

    - single: of the text alone; of the context and the text joined to one text.
    - curved: as candidates, a; as utterances, b, their speaker the other of who answers; in
      context, of mean_i b_i + b.
    - triple: as candidates, a; as utterances, b2; in context, of the rows that they would add to
      the running query, Σ_i (b1_i + b2)/‖b1_i + b2‖: two utterances are alike, after this
      context, as far as they move the next reply alike.
    - pairwise: as responses; as a context of one utterance; in context, as the contexts that end
      with them.

    Without a context the last two of each are the same.
    """
    if isinstance(model, PairwiseModel):
        return _pairwise(model)
    if model.kind is EncoderKind.SINGLE:
        return _single(model)
    mix = row if model.kind is EncoderKind.TRIPLE else _mean

    def as_candidate(said: Sequence[Said]) -> Float32:
        return model.encode([item.text for item in said], Role.AFTER)

    def as_utterance(said: Sequence[Said]) -> Float32:
        return model.encode([item.text for item in said], Role.SECOND, Relation.OTHER)

    def in_context(said: Sequence[Said]) -> Float32:
        role = Role.FIRST if model.kind is EncoderKind.TRIPLE else Role.SECOND
        before = [context_keys(item.context, _answerer(item), role) for item in said]
        own: list[Key] = [(item.text, Role.SECOND, Relation.OTHER) for item in said]
        table = VectorTable(model, [*own, *(key for keys in before for key in keys)])
        mixed = [mix(table[keys], new) for keys, new in zip(before, table[own], strict=True)]
        return _unit(np.stack(mixed))

    return _three(as_candidate, as_utterance, in_context)


def _single(encoder: UtteranceEncoder) -> list[Measure]:
    def alone(said: Sequence[Said]) -> Float32:
        return encoder.encode([item.text for item in said], Role.AFTER)

    def joined(said: Sequence[Said]) -> Float32:
        texts = [" ".join([*(u.text for u in item.context), item.text]) for item in said]
        return encode_from_left(encoder, texts)

    return [
        Measure("alone", _cosines(alone)),
        Measure("joined to the context", _cosines(joined), uses_context=True),
    ]


def _pairwise(model: PairwiseModel) -> list[Measure]:
    def as_candidate(said: Sequence[Said]) -> Float32:
        return model.encode_responses([item.text for item in said])

    def as_utterance(said: Sequence[Said]) -> Float32:
        return model.encode_contexts([[item.text] for item in said])

    def in_context(said: Sequence[Said]) -> Float32:
        texts = [[*(u.text for u in item.context), item.text] for item in said]
        return model.encode_contexts(texts)

    return _three(as_candidate, as_utterance, in_context)


def _three(as_candidate: Embed, as_utterance: Embed, in_context: Embed) -> list[Measure]:
    return [
        Measure("as candidates", _cosines(as_candidate)),
        Measure("as utterances", _cosines(as_utterance)),
        Measure("in context", _cosines(in_context), uses_context=True),
    ]


def _cosines(embed: Embed) -> Similar:
    def similar(first: Sequence[Said], second: Sequence[Said]) -> Float32:
        vectors = embed([*first, *second])
        cosines: Float32 = np.einsum("nd,nd->n", vectors[: len(first)], vectors[len(first) :])
        return cosines

    return similar


def _mean(before: Float32, new: Float32) -> Float32:
    mixed: Float32 = before.mean(axis=0) + new if len(before) else new
    return mixed


def _unit(vectors: Float32) -> Float32:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Float32 = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
    return unit


def _answerer(said: Said) -> str:
    """Return who would speak next: who last did before, or someone else."""
    return said.context[-1].speaker if said.context else f"not {said.speaker}"
