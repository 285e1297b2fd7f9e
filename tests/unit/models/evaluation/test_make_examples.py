import numpy as np
import pytest

from tests.unit.models.conftest import Encoders
from turnwise.models.data import Dialogue
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.short_term import make_examples, retrieved_replies
from turnwise.models.roles import EncoderKind, Role


def propose(dialogue: Dialogue, length: int) -> list[str]:
    return ["one", dialogue.utterances[length].text, "two"]


def test_each_distance_that_fits_gives_an_example(dialogues: list[Dialogue]) -> None:
    done = []
    examples = make_examples(
        dialogues[3:5], [2, 3], [1, 3], propose, lambda *step: done.append(step)
    )
    assert done == [(1, 3), (2, 3), (3, 3)]
    made = [(len(e.context), e.goal_distance, e.goal) for e in examples]
    short = dialogues[3].utterances
    long = dialogues[4].utterances
    assert made == [(2, 1, short[3]), (2, 1, long[3]), (2, 3, long[5]), (3, 1, long[4])]
    assert examples[0].true == short[2]
    assert examples[0].candidates == ("one", "two")  # without the true reply


def test_a_context_without_candidates_gives_no_example(dialogues: list[Dialogue]) -> None:
    def propose_late(dialogue: Dialogue, length: int) -> list[str]:
        return propose(dialogue, length)[0 if length == 3 else 1 : 2]

    examples = make_examples(dialogues[:1], [2, 3], [1], propose_late)
    assert [(len(e.context), e.candidates) for e in examples] == [(3, ("one",))]
    with pytest.raises(TurnwiseError, match="none has a candidate besides the true reply"):
        make_examples(dialogues, [2], [1], lambda *_: [])
    with pytest.raises(TurnwiseError, match="no dialogue is long enough"):
        make_examples(dialogues[1:2], [2], [1], propose)


def test_retrieved_replies_are_the_best_of_other_dialogues(
    tiny_encoder: Encoders, dialogues: list[Dialogue]
) -> None:
    encoder = tiny_encoder(EncoderKind.SINGLE)
    found = retrieved_replies(encoder, dialogues, [3])(dialogues[0], 3)[:5]
    context = [said.text for said in dialogues[0].utterances[:3]]
    own = {said.text for said in dialogues[0].utterances}
    others = {said.text for d in dialogues for said in d.utterances} - own
    query = encoder.encode(context, Role.AFTER).astype(np.float64).sum(axis=0)
    scores = {text: float(encoder.encode([text], Role.AFTER)[0] @ query) for text in others}
    assert found == sorted(scores, key=scores.__getitem__, reverse=True)[:5]
    all_others = retrieved_replies(encoder, dialogues[:2], [3])(dialogues[0], 3)
    assert sorted(all_others) == sorted(said.text for said in dialogues[1].utterances)
