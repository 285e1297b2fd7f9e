import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.unit.models.conftest import WORDS, Encoders
from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.language_model import LanguageModel, write_prompt
from turnwise.models.evaluation.similarity import (
    Pair,
    Question,
    cosine_systems,
    evaluate_choices,
    evaluate_language_models,
    evaluate_similarity,
    make_comparisons,
    texts_of_examples,
    word_overlap,
)
from turnwise.models.evaluation.split import Context
from turnwise.models.evaluation.systems import System
from turnwise.models.evaluation.truncation import warn_of_truncation
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.roles import EncoderKind, Relation, Role
from turnwise.models.scores import row

Model = UtteranceEncoder | PairwiseModel
CONTEXT = (Utterance("A", "bread rain"), Utterance("B", "train"), Utterance("A", "music garden"))
SAID = [Context(CONTEXT, Utterance("B", "letter")), Context((), Utterance("A", "winter"))]
OTHERS = ["river window", "lamp rain"]
# To what A would say next.
RELATIONS = [Relation.SAME, Relation.OTHER, Relation.SAME]


def cosine(first: NDArray[np.floating], second: NDArray[np.floating]) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def scored(system: System) -> list[float]:
    """The score of each example with its candidate."""
    return np.diagonal(system.scores(np.arange(len(SAID)), np.arange(len(OTHERS)))).tolist()


def found(model: Model, said: Sequence[Context] = SAID) -> dict[str, list[float]]:
    """The scores of two pairs by system; the first pair has a context."""
    pairs = [Pair(one, other, 0, "", "") for one, other in zip(said, OTHERS, strict=True)]
    return {
        system.name: scored(system) for system in cosine_systems(model, make_comparisons(pairs))
    }


def expected(embed: Callable[[tuple[Utterance, ...], str], NDArray[np.floating]]) -> object:
    cosines = [
        cosine(embed(said.utterances, said.target.text), embed(said.utterances, other))
        for said, other in zip(SAID, OTHERS, strict=True)
    ]
    return pytest.approx(cosines, abs=1e-5)


def second(encoder: UtteranceEncoder, text: str) -> Float32:
    return encoder.encode([text], Role.SECOND, Relation.OTHER)[0]


def contexts(encoder: UtteranceEncoder, role: Role) -> Float32:
    return encoder.encode([said.text for said in CONTEXT], role, RELATIONS)


@pytest.mark.parametrize(
    "kind",
    [EncoderKind.TRIPLE, EncoderKind.CURVED, EncoderKind.CURVED_WITHOUT_SPEAKERS],
)
def test_two_texts_compare_as_candidates_or_as_utterances(
    kind: EncoderKind, tiny_encoder: Encoders
) -> None:
    encoder = tiny_encoder(kind)
    scores = found(encoder)
    assert scores["as candidates"] == expected(lambda _, t: encoder.encode([t], Role.AFTER)[0])
    assert scores["as utterances"] == expected(lambda _, text: second(encoder, text))


def test_a_triple_encoder_compares_the_rows_after_the_context(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    before = contexts(encoder, Role.FIRST)

    def new_row(context: tuple[Utterance, ...], text: str) -> Float32:
        return row(before if context else before[:0], second(encoder, text))

    assert found(encoder)["in context"] == expected(new_row)


def test_ccl_compares_sums_with_the_mean_of_the_context(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.CURVED)
    before = contexts(encoder, Role.SECOND).mean(axis=0)

    def mixed(context: tuple[Utterance, ...], text: str) -> Float32:
        return before + second(encoder, text) if context else second(encoder, text)

    assert found(encoder)["in context"] == expected(mixed)


def test_a_plain_encoder_reads_context_and_text_as_one(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.SINGLE)

    def joined(context: tuple[Utterance, ...], text: str) -> Float32:
        texts = [*(utterance.text for utterance in context), text]
        return encoder.encode([" ".join(texts)], Role.AFTER)[0]

    scores = found(encoder)
    assert scores["alone"] == expected(lambda _, text: encoder.encode([text], Role.AFTER)[0])
    assert scores["joined to the context"] == expected(joined)


def test_a_pairwise_model_compares_responses_and_contexts(pairwise: PairwiseModel) -> None:
    def ending(context: tuple[Utterance, ...], text: str) -> Float32:
        return pairwise.encode_contexts([[*(said.text for said in context), text]])[0]

    scores = found(pairwise)
    assert scores["as candidates"] == expected(lambda _, t: pairwise.encode_responses([t])[0])
    assert scores["as utterances"] == expected(lambda _, t: pairwise.encode_contexts([[t]])[0])
    assert scores["in context"] == expected(ending)


@pytest.mark.parametrize("kind", list(EncoderKind))
def test_systems_that_read_the_context_are_left_out_without_one(
    kind: EncoderKind, tiny_encoder: Encoders
) -> None:
    given = found(tiny_encoder(kind))
    alone = found(tiny_encoder(kind), [Context((), said.target) for said in SAID])
    (reads_context,) = given.keys() - alone.keys()
    assert "context" in reads_context
    for name, scores in alone.items():
        assert given[name] == pytest.approx(scores, abs=1e-5)


def test_word_overlap_is_the_share_of_common_words() -> None:
    texts = {"Rain, rain again!": "no rain", "no rain": "no rain", "": "", "snow": "Rain"}
    pairs = [
        Pair(Context((), Utterance("A", text)), other, 0, "", "") for text, other in texts.items()
    ]
    data = make_comparisons(pairs)
    system = word_overlap(data)
    scores = [
        float(system.scores(np.array([n]), own)[0, 0]) for n, own in enumerate(data.candidates)
    ]
    assert scores == pytest.approx([1 / 3, 1, 0, 0])


def make_pairs(count: int = 24, *, contexts: bool = True) -> list[Pair]:
    generator = np.random.default_rng(3)

    def text() -> str:
        return " ".join(generator.choice(WORDS, 3))

    made = []
    for number in range(count):
        said = tuple(Utterance("AB"[n % 2], text()) for n in range(number % 3 * contexts))
        score = float(generator.integers(6))
        domain = ("home", "shop/")[number % 2]
        made.append(
            Pair(Context(said, Utterance("C", text())), text(), score, domain, f"f, line {number}")
        )
    return made


def test_correlations_are_those_of_the_systems(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    pairs = make_pairs()
    rows = {row.system: row.metrics for row in evaluate_similarity({"t": encoder}, pairs)}
    data = make_comparisons(pairs)
    systems = cosine_systems(encoder, data)
    assert list(rows) == ["word overlap", *(f"t · {system.name}" for system in systems)]
    scores = np.array([pair.score for pair in pairs])
    home = np.array([pair.domain == "home" for pair in pairs])
    short = np.array([len(pair.said.utterances) == 1 for pair in pairs])
    for system in systems:
        own = np.concatenate(data.candidates)
        similar = system.scores(np.arange(len(pairs)), own).diagonal()
        measured = rows[f"t · {system.name}"]
        for name, those in {"": scores >= 0, "/domain=home": home, "/turns=1": short}.items():
            theirs = stats.pearsonr(similar[those], scores[those]).statistic
            assert measured[f"pearson{name}"] == pytest.approx(theirs, abs=1e-4)
            theirs = stats.spearmanr(similar[those], scores[those]).statistic
            assert measured[f"spearman{name}"] == pytest.approx(theirs, abs=1e-4)


def test_a_domain_of_two_pairs_has_no_correlation() -> None:
    (overlap,) = evaluate_similarity({}, make_pairs(5))
    assert "pearson/domain=home" in overlap.metrics
    assert "pearson/domain=shop/" not in overlap.metrics
    (overlap,) = evaluate_similarity({}, make_pairs(9))
    assert "pearson/domain=shop/" in overlap.metrics


def test_warnings_of_cut_texts_name_their_place(
    tiny_encoder: Encoders, caplog: pytest.LogCaptureFixture
) -> None:
    said = Context((Utterance("A", "y " * 200),), Utterance("B", "short"))
    examples = [
        Pair(said, "x " * 200, 1, "", "file, line 1"),
        Question(said, ("z " * 200,), 0, "", "file, line 2"),
    ]
    with caplog.at_level(logging.WARNING, "turnwise.evaluation"):
        for example in examples:
            texts = texts_of_examples([example])
            warn_of_truncation({"s": tiny_encoder(EncoderKind.SINGLE)}, texts)
    assert [record.getMessage() for record in caplog.records] == [
        f'file, line {n}, field "context": longer than s reads, and cut, as are 2 of 3 in all'
        for n in (1, 2)
    ]


def make_questions(count: int = 12) -> list[Question]:
    generator = np.random.default_rng(5)
    made = []
    for number in range(count):
        said = tuple(Utterance("AB"[n % 2], WORDS[(number + n) % 10]) for n in range(number % 3))
        choices = tuple(map(str, generator.permutation(WORDS)[:5]))
        last = Context(said, Utterance("C", WORDS[number % 10]))
        domain = ("home", "shop")[number % 2]
        made.append(Question(last, choices, number % 5, domain, f"file, line {number}"))
    return made


def test_the_most_similar_choice_is_taken(tiny_encoder: Encoders) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    questions = make_questions()
    rows = {row.system: row for row in evaluate_choices({"t": encoder}, questions)}
    assert rows["chance"].metrics == {"accuracy": pytest.approx(0.2)}
    data = make_comparisons(questions)
    for system in cosine_systems(encoder, data):
        similar = system.scores(np.arange(12), np.arange(len(data.pool)))
        right = [
            int(np.argmax(similar[n, own])) == questions[n].answer
            for n, own in enumerate(data.candidates)
        ]
        row = rows[f"t · {system.name}"]
        assert row.outcomes
        assert row.outcomes.values.tolist() == right
        assert row.metrics["accuracy"] == pytest.approx(np.mean(right))
        assert row.metrics["accuracy/domain=shop"] == pytest.approx(np.mean(right[1::2]))
        assert row.metrics["accuracy/turns=2"] == pytest.approx(np.mean(right[2::3]))


def test_questions_may_have_different_numbers_of_choices() -> None:
    last = Context((), Utterance("A", "bread"))
    asked = [
        Question(last, ("rain", "bread"), 1, "", ""),
        Question(last, ("bread",) * 3, 1, "", ""),
    ]
    chance, overlap = evaluate_choices({}, asked)
    assert chance.metrics["accuracy"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert overlap.metrics["accuracy"] == pytest.approx((1 + 1 / 3) / 2)


def test_a_language_model_takes_the_likeliest_choice(small_language_model: Path) -> None:
    model = LanguageModel(small_language_model)
    asked = make_questions()
    asked[0] = Question(asked[0].said, ("rain", "lamp river bread winter"), 0, "", "")
    rows = {r.system: r.metrics for r in evaluate_language_models({"m": model}, asked, "de")}
    assert list(rows) == [
        *("m · alone, whole", "m · alone, a token"),
        *("m · with context, whole", "m · with context, a token"),
    ]
    for with_context, of in ((False, "alone"), (True, "with context")):
        whole = []
        token = []
        for question in asked:
            given = write_prompt(question.said, "de", with_context=with_context)
            prompts = [given] * len(question.candidates)
            likelihoods, tokens = model.log_likelihoods(prompts, question.candidates)
            whole.append(int(np.argmax(likelihoods)) == question.answer)
            token.append(int(np.argmax(likelihoods / tokens)) == question.answer)
        assert rows[f"m · {of}, whole"]["accuracy"] == pytest.approx(np.mean(whole))
        assert rows[f"m · {of}, a token"]["accuracy"] == pytest.approx(np.mean(token))
