import pytest

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.split import make_split


def test_every_dialogue_longer_than_the_history_gives_a_context(
    dialogues: list[Dialogue],
) -> None:
    split = make_split(dialogues, [3, 10])
    lengths = [len(context.history) for context in split.contexts]
    assert lengths == [3] * 7 + [10] * 3
    assert split.contexts[0].target == dialogues[0].utterances[3]


def test_the_full_pool_holds_every_text_once(dialogues: list[Dialogue]) -> None:
    split = make_split([*dialogues, dialogues[0]], [3])
    texts = {said.text for dialogue in dialogues for said in dialogue.utterances}
    assert sorted(split.pool) == sorted(texts)


def test_the_true_place_holds_what_was_said(dialogues: list[Dialogue]) -> None:
    split = make_split(dialogues, [2, 5], full_pool=False)
    said = [context.target.text for context in split.contexts]
    assert [split.pool[place] for place in split.true] == said
    assert set(split.pool) == set(said)


def test_dialogues_that_are_all_too_short_are_refused() -> None:
    short = Dialogue("1", (Utterance("A", "hello there"), Utterance("B", "good evening")))
    with pytest.raises(TurnwiseError, match="no dialogue is longer than 2 utterances"):
        make_split([short])
