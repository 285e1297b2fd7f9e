from collections.abc import Callable

import numpy as np
import pytest

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.split import (
    Context,
    VectorTable,
    candidate_inputs,
    dialogues_of,
    make_split,
)
from turnwise.models.roles import EncoderKind, Relation, Role


def test_every_dialogue_longer_than_a_length_gives_a_context(dialogues: list[Dialogue]) -> None:
    split = make_split(dialogues, [3, 10], full_pool=False)
    assert [len(context.utterances) for context in split.contexts] == [3] * 7 + [10] * 3
    assert split.contexts[0].target == dialogues[0].utterances[3]
    targets = [context.target.text for context in split.contexts]
    assert [split.pool[place] for place in split.true] == targets
    assert set(split.pool) == set(targets)


def test_the_full_pool_holds_every_text_once(dialogues: list[Dialogue]) -> None:
    split = make_split([*dialogues, dialogues[0]], [3])
    texts = {said.text for dialogue in dialogues for said in dialogue.utterances}
    assert sorted(split.pool) == sorted(texts)


def test_dialogues_that_are_all_too_short_are_rejected() -> None:
    short = Dialogue("1", (Utterance("A", "hello there"), Utterance("B", "good evening")))
    with pytest.raises(TurnwiseError, match="no dialogue is longer than 2 utterances"):
        make_split([short])


def test_contexts_that_begin_alike_are_of_one_dialogue(dialogues: list[Dialogue]) -> None:
    split = make_split(dialogues, [3, 10], full_pool=False)
    long_enough = [0, *range(2, 8)]
    expected = [long_enough.index(n) for n in [*long_enough, 0, 2, 6]]
    assert split.dialogues.tolist() == expected
    one = Utterance("A", "hello")
    contexts = [[one], [one, Utterance("B", "hi")], [Utterance("B", "hello")]]
    assert dialogues_of(contexts).tolist() == [0, 0, 1]


@pytest.mark.parametrize("kind", list(EncoderKind))
def test_a_table_gives_the_vectors_of_the_encoder(
    kind: EncoderKind, tiny_encoder: Callable[[EncoderKind], UtteranceEncoder]
) -> None:
    encoder = tiny_encoder(kind)
    said = (Utterance("A", "is the shop open"), Utterance("B", "until six"))
    context = Context(said, Utterance("A", "thanks")).inputs(Role.SECOND)
    after = candidate_inputs(["until six"])
    table = VectorTable(encoder, [*context, *after])
    relations = [Relation.SAME, Relation.OTHER]
    expected = encoder.encode([one.text for one in said], Role.SECOND, relations)
    np.testing.assert_allclose(table[context], expected, atol=1e-5)
    expected = encoder.encode(["until six"], Role.AFTER)
    np.testing.assert_allclose(table[after], expected, atol=1e-5)
