from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from turnwise.models.arrays import Float32, Float64
from turnwise.models.data import Utterance
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.in_context import Measure, measures, word_overlap
from turnwise.models.evaluation.similarity_files import Said
from turnwise.models.rerankers import PairwiseModel
from turnwise.models.roles import EncoderKind, Relation, Role

Encoders = Callable[[EncoderKind], UtteranceEncoder]
HISTORY = (Utterance("A", "bread rain"), Utterance("B", "train"), Utterance("A", "music garden"))
FIRST = [Said(HISTORY, "B", "letter"), Said((), "A", "winter")]
SECOND = [Said(HISTORY, "B", "river window"), Said((), "A", "lamp rain")]
# To what A would say next.
RELATIONS = [Relation.SAME, Relation.OTHER, Relation.SAME]


def cosine(first: NDArray[np.floating], second: NDArray[np.floating]) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def named(model: UtteranceEncoder | PairwiseModel) -> dict[str, Measure]:
    return {measure.name: measure for measure in measures(model)}


def expected(embed: Callable[[Said], NDArray[np.floating]]) -> list[float]:
    return [cosine(embed(a), embed(b)) for a, b in zip(FIRST, SECOND, strict=True)]


def histories(encoder: UtteranceEncoder, role: Role) -> Float64:
    texts = [said.text for said in HISTORY]
    return encoder.encode(texts, role, RELATIONS).astype(np.float64)


@pytest.mark.parametrize(
    "kind", [EncoderKind.TRIPLE, EncoderKind.CURVED, EncoderKind.CURVED_WITHOUT_SPEAKERS]
)
def test_two_texts_compare_as_candidates_or_as_utterances(
    kind: EncoderKind, tiny_encoder: Encoders
) -> None:
    encoder, found = tiny_encoder(kind), named(tiny_encoder(kind))
    as_candidates = expected(lambda said: encoder.encode([said.text], Role.AFTER)[0])
    as_utterances = expected(
        lambda said: encoder.encode([said.text], Role.SECOND, Relation.OTHER)[0]
    )
    assert found["as candidates"].similar(FIRST, SECOND) == pytest.approx(as_candidates, abs=1e-5)
    assert found["as utterances"].similar(FIRST, SECOND) == pytest.approx(as_utterances, abs=1e-5)


def test_a_triple_encoder_compares_the_rows_after_the_context(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    before = histories(encoder, Role.FIRST)

    def row(said: Said) -> Float64:
        new = encoder.encode([said.text], Role.SECOND, Relation.OTHER)[0].astype(np.float64)
        if not said.context:
            return new
        return sum((b1 + new) / np.linalg.norm(b1 + new) for b1 in before)

    similar = named(encoder)["in context"].similar(FIRST, SECOND)
    assert similar == pytest.approx(expected(row), abs=1e-5)


def test_ccl_compares_sums_with_the_mean_of_the_context(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.CURVED)
    before = histories(encoder, Role.SECOND).mean(axis=0)

    def mixed(said: Said) -> Float64:
        new = encoder.encode([said.text], Role.SECOND, Relation.OTHER)[0].astype(np.float64)
        return before + new if said.context else new

    similar = named(encoder)["in context"].similar(FIRST, SECOND)
    assert similar == pytest.approx(expected(mixed), abs=1e-5)


def test_a_plain_encoder_reads_context_and_text_as_one(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.SINGLE)

    def joined(said: Said) -> Float32:
        texts = [*(utterance.text for utterance in said.context), said.text]
        return encoder.encode([" ".join(texts)], Role.AFTER)[0]

    found = named(encoder)
    alone = expected(lambda said: encoder.encode([said.text], Role.AFTER)[0])
    assert found["alone"].similar(FIRST, SECOND) == pytest.approx(alone, abs=1e-5)
    similar = found["joined to the context"].similar(FIRST, SECOND)
    assert similar == pytest.approx(expected(joined), abs=1e-5)


def test_a_pairwise_model_compares_responses_and_contexts(pairwise: PairwiseModel) -> None:
    def ending(said: Said) -> Float32:
        texts = [*(utterance.text for utterance in said.context), said.text]
        return pairwise.encode_contexts([texts])[0]

    found = named(pairwise)
    responses = expected(lambda said: pairwise.encode_responses([said.text])[0])
    utterances = expected(lambda said: pairwise.encode_contexts([[said.text]])[0])
    assert found["as candidates"].similar(FIRST, SECOND) == pytest.approx(responses, abs=1e-5)
    assert found["as utterances"].similar(FIRST, SECOND) == pytest.approx(utterances, abs=1e-5)
    assert found["in context"].similar(FIRST, SECOND) == pytest.approx(expected(ending), abs=1e-5)


@pytest.mark.parametrize("kind", list(EncoderKind))
def test_only_what_is_said_to_use_the_context_does(
    kind: EncoderKind, tiny_encoder: Encoders
) -> None:
    without = [Said((), said.speaker, said.text) for said in FIRST]
    without_too = [Said((), said.speaker, said.text) for said in SECOND]
    for measure in measures(tiny_encoder(kind)):
        given = measure.similar(FIRST, SECOND)[0]
        alone = measure.similar(without, without_too)[0]
        assert (given != pytest.approx(alone, abs=1e-5)) == measure.uses_context, measure.name


def test_word_overlap_is_the_share_of_common_words() -> None:
    texts = ["Rain, rain again!", "no rain", "", "snow"]
    said = [Said((), "A", text) for text in texts]
    similar = word_overlap().similar(said, [said[1], said[1], said[2], said[0]])
    assert similar == pytest.approx([1 / 3, 1, 0, 0])
