import numpy as np
import pytest

from tests.unit.models.conftest import Encoders
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.evaluation.answers import OUTSIDE, Answer
from turnwise.models.evaluation.dialogue_answers import (
    ASKED_BEFORE,
    CONTEXTS,
    EXAMPLES,
    ask_in_sessions,
    encode_dialogue_answers,
    find_answers,
)
from turnwise.models.fusion import DEFAULT_FUSION, MOST_UTTERANCES, NO_EXAMPLE
from turnwise.models.roles import EncoderKind, Relation, Role

REPLIES = ["winter rain", "music letter", "bread window"]


def dialogue(name: str, *texts: str) -> Dialogue:
    said = tuple(Utterance("AB"[index % 2], text) for index, text in enumerate(texts))
    return Dialogue(name, said)


DIALOGUES = [
    dialogue(f"{number}-{reply}", "lamp", f"river {number}", f"{number} {reply} lamp", reply)
    for number in range(20)
    for reply in REPLIES
]


def test_replies_that_recur_are_the_pool() -> None:
    found = find_answers(DIALOGUES)
    assert sorted(found.split.pool) == sorted(REPLIES)
    for context, true in zip(found.split.contexts, found.split.true, strict=True):
        assert context.target.text == found.split.pool[true]
    assert len(found.split.contexts) == CONTEXTS * len(REPLIES)
    assert {len(examples) for examples in found.examples} == {EXAMPLES}


def test_examples_come_from_other_dialogues_than_contexts() -> None:
    found = find_answers(DIALOGUES)
    asked = {context.utterances[-1].text for context in found.split.contexts}
    assert asked.isdisjoint(text for examples in found.examples for text in examples)


def test_a_context_has_the_newest_utterances() -> None:
    long = [
        dialogue(each.id, *["lamp", "river"] * 10, *(said.text for said in each.utterances))
        for each in DIALOGUES
    ]
    contexts = [
        context
        for context in find_answers(long).split.contexts
        if "lamp" not in context.target.text
    ]
    assert {len(context.utterances) for context in contexts} == {MOST_UTTERANCES}


def test_a_speaker_who_repeats_the_last_utterance_is_not_asked() -> None:
    stubborn = [
        dialogue(
            each.id, *(said.text for said in each.utterances), "lamp", each.utterances[-1].text
        )
        for each in DIALOGUES
    ]
    for context in find_answers(stubborn).split.contexts:
        assert context.utterances[-2].text != context.target.text


def test_a_trial_scores_contexts_by_their_query_and_their_newest_utterance(
    tiny_encoder: Encoders,
) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    answers = find_answers(DIALOGUES)
    trial = encode_dialogue_answers(encoder, answers).draw_trial(3, 0.67, seed=0)
    context = answers.split.contexts[0]
    replies = encoder.encode(answers.split.pool, Role.AFTER)
    query = encoder.aggregation.query(
        encoder.encode_in_roles(context.inputs(Role.FIRST)),
        encoder.encode_in_roles(context.inputs(Role.SECOND)),
    )
    assert trial.replies[0] == pytest.approx(replies @ query, abs=1e-5)
    newest = encoder.encode([context.texts[-1]], Role.SECOND, Relation.OTHER)[0]
    assert trial.contexts.newest[0] == pytest.approx(newest, abs=1e-6)
    assert (trial.examples == NO_EXAMPLE).all(axis=0).tolist() == (~trial.covered).tolist()
    assert trial.covered.sum() == 2


def test_a_reply_that_was_just_said_is_left_out(tiny_encoder: Encoders) -> None:
    first = dict.fromkeys(REPLIES[1:], REPLIES[0])
    repeated = [
        dialogue(
            each.id,
            "lamp",
            first.get(each.utterances[-1].text, "river"),
            *(said.text for said in each.utterances[2:]),
        )
        for each in DIALOGUES
    ]
    answers = find_answers(repeated)
    trial = encode_dialogue_answers(tiny_encoder(EncoderKind.TRIPLE), answers).draw_trial(
        1, 1.0, seed=0
    )
    said = answers.split.pool.index(REPLIES[0])
    has_said = [context.utterances[-2].text == REPLIES[0] for context in answers.split.contexts]
    assert np.isneginf(trial.scores(DEFAULT_FUSION)[:, said]).tolist() == has_said


def test_sessions_ask_for_other_answers_before() -> None:
    answers = [
        Answer(text, text, tuple(f"{text} {number}" for number in range(5))) for text in REPLIES
    ]
    found = ask_in_sessions(answers, ["lamp"])
    *inside, outside = zip(found.split.contexts, found.split.true.tolist(), strict=True)
    assert len(inside) == CONTEXTS * len(REPLIES)
    for context, true in inside:
        *before, question = context.texts
        replies = before[1::2]
        assert question in set(answers[true].questions) - set(found.examples[true])
        assert 1 <= len(replies) <= ASKED_BEFORE
        assert answers[true].text not in replies
        assert [asked[:-2] for asked in before[::2]] == replies
    context, true = outside
    assert (context.texts[-1], true) == ("lamp", OUTSIDE)


def test_sessions_do_not_ask_for_an_answer_with_one_example() -> None:
    found = ask_in_sessions([Answer("a", "rain", ("lamp",)), Answer("b", "tram", ("oven", "tree"))])
    assert found.split.true.tolist() == [1]
    assert found.examples[0] == ("lamp",)
