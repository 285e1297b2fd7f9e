from dataclasses import replace

import pytest

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.split import Context, make_split, next_speaker, split_of


def test_every_dialogue_longer_than_a_length_gives_a_context(dialogues: list[Dialogue]) -> None:
    split = make_split(dialogues, [3, 10], full_pool=False)
    assert [len(context.utterances) for context in split.contexts] == [3] * 7 + [10] * 3
    assert split.contexts[0].target == dialogues[0].utterances[3]
    targets = [context.target.text for context in split.contexts]
    assert [split.pool[place] for place in split.true] == targets
    assert set(split.pool) == set(targets)


def test_dialogues_that_are_all_too_short_are_rejected() -> None:
    short = Dialogue("1", (Utterance("A", "hello there"), Utterance("B", "good evening")))
    with pytest.raises(TurnwiseError, match="no dialogue is longer than 2 utterances"):
        make_split([short])


def test_contexts_know_their_dialogue_or_are_of_one_if_they_begin_alike(
    dialogues: list[Dialogue],
) -> None:
    split = make_split(dialogues, [3, 10], full_pool=False)
    long_enough = [0, *range(2, 8)]
    expected = [long_enough.index(n) for n in [*long_enough, 0, 2, 6]]
    assert split.dialogues.tolist() == expected
    one = Utterance("A", "hello")
    hi = Utterance("B", "hi")
    said = [(one,), (one, hi), (Utterance("B", "hello"),)]
    unknown = [Context(each, hi) for each in said]
    assert split_of(unknown).dialogues.tolist() == [0, 0, 1]
    greeted = [replace(each, utterances=(one, *each.utterances[1:])) for each in dialogues]
    assert make_split(greeted, [1, 10]).dialogues.tolist() == [*range(8), 0, 2, 6]


@pytest.mark.parametrize(
    ("speakers", "following"), [("A", "B"), ("B", "A"), ("AB", "A"), ("CAB", "A"), ("CAAB", "A")]
)
def test_the_speaker_before_the_last_one_speaks_next(speakers: str, following: str) -> None:
    assert next_speaker([Utterance(speaker, "hi") for speaker in speakers]) == following
