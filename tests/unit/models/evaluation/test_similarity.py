from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    word_overlap,
)
from turnwise.models.evaluation.split import Context
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


def found(model: Model) -> dict[str, list[float]]:
    """The scores of two pairs by system; the first pair has a context."""
    pairs = [Pair(one, other, 0, "", "") for one, other in zip(SAID, OTHERS, strict=True)]
    places = np.arange(len(SAID))
    systems = cosine_systems(model, make_comparisons(pairs))
    return {system.name: np.diagonal(system.scores(places, places)).tolist() for system in systems}


Said = tuple[Utterance, ...]


def as_candidate(encoder: UtteranceEncoder, _: Said, text: str) -> Float32:
    return encoder.encode([text], Role.AFTER)[0]


def as_utterance(encoder: UtteranceEncoder, _: Said, text: str) -> Float32:
    return encoder.encode([text], Role.SECOND, Relation.OTHER)[0]


def as_row(encoder: UtteranceEncoder, context: Said, text: str) -> Float32:
    texts = [said.text for said in context]
    before = encoder.encode(texts, Role.FIRST, RELATIONS[: len(texts)])
    return row(before, as_utterance(encoder, context, text))


def with_mean(encoder: UtteranceEncoder, context: Said, text: str) -> Float32:
    alone = as_utterance(encoder, context, text)
    if not context:
        return alone
    return encoder.encode([said.text for said in context], Role.SECOND, RELATIONS).mean(0) + alone


def joined(encoder: UtteranceEncoder, context: Said, text: str) -> Float32:
    return as_candidate(encoder, (), " ".join([*(said.text for said in context), text]))


def as_response(model: PairwiseModel, _: Said, text: str) -> Float32:
    return model.encode_responses([text])[0]


def as_context(model: PairwiseModel, _: Said, text: str) -> Float32:
    return model.encode_contexts([[text]])[0]


def as_end(model: PairwiseModel, context: Said, text: str) -> Float32:
    return model.encode_contexts([[*(said.text for said in context), text]])[0]


Embed = Callable[[Any, Said, str], Float32]
BOTH: dict[str, Embed] = {"as candidates": as_candidate, "as utterances": as_utterance}
SYSTEMS: dict[EncoderKind | None, dict[str, Embed]] = {
    EncoderKind.TRIPLE: BOTH | {"in context": as_row},
    EncoderKind.CURVED: BOTH | {"in context": with_mean},
    EncoderKind.CURVED_WITHOUT_SPEAKERS: BOTH | {"in context": with_mean},
    EncoderKind.SINGLE: {"alone": as_candidate, "joined to the context": joined},
    None: {"as candidates": as_response, "as utterances": as_context, "in context": as_end},
}


@pytest.mark.parametrize("kind", SYSTEMS, ids=lambda kind: str(kind or "pairwise"))
def test_each_system_compares_two_texts_in_its_own_way(
    kind: EncoderKind | None, tiny_encoder: Encoders, pairwise: PairwiseModel
) -> None:
    model = tiny_encoder(kind) if kind else pairwise
    scores = found(model)
    assert scores.keys() == SYSTEMS[kind].keys()
    for name, embed in SYSTEMS[kind].items():
        wanted = [
            cosine(*(embed(model, said.utterances, text) for text in (said.target.text, other)))
            for said, other in zip(SAID, OTHERS, strict=True)
        ]
        assert scores[name] == pytest.approx(wanted, abs=1e-5), name


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


def make_pairs() -> list[Pair]:
    generator = np.random.default_rng(3)

    def text() -> str:
        return " ".join(generator.choice(WORDS, 3))

    made = []
    for number in range(24):
        said = tuple(Utterance("AB"[n % 2], text()) for n in range(number % 3))
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


def make_questions() -> list[Question]:
    generator = np.random.default_rng(5)
    made = []
    for number in range(12):
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
