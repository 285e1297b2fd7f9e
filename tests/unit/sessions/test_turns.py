from hypothesis import given
from hypothesis import strategies as st

from turnwise.models.data import Utterance
from turnwise.service.sessions.turns import Turn, count_unchanged, join_turns, last_turns

turn_lists = st.lists(
    st.builds(Turn, st.sampled_from("ab"), st.sampled_from(["x", "y"]), st.just(0.0)), max_size=8
)


def test_consecutive_turns_of_one_speaker_are_one_utterance() -> None:
    said = [Turn("user", "Hello.", 0.0), Turn("user", "Anyone?", 1.0), Turn("bot", "Yes.", 2.0)]
    assert join_turns(said) == (Utterance("user", "Hello. Anyone?"), Utterance("bot", "Yes."))
    assert last_turns(said) == [2, 3]


def test_a_long_run_of_turns_is_cut_to_the_newest() -> None:
    said = [Turn("user", f"{number:03} {'x' * 95}", 0.0) for number in range(20)]
    (utterance,) = join_turns(said)
    assert utterance.text == " ".join(turn.text for turn in said[-8:])
    assert len(utterance.text) <= 800
    long = Turn("user", "y" * 3000, 0.0)
    assert join_turns([*said, long]) == (Utterance("user", long.text),)
    assert join_turns([long, said[0]]) == (Utterance("user", said[0].text),)


@given(turn_lists)
def test_every_utterance_ends_with_its_last_turn(said: list[Turn]) -> None:
    ends = last_turns(said)
    assert len(ends) == len(join_turns(said))
    begins = [0, *ends]
    for utterance, begin, end in zip(join_turns(said), begins, ends, strict=False):
        assert utterance.text == " ".join(turn.text for turn in said[begin:end])


@given(turn_lists, turn_lists)
def test_unchanged_utterances_are_the_longest_common_beginning(
    before: list[Turn], after: list[Turn]
) -> None:
    old = join_turns(before)
    new = join_turns(after)
    same = count_unchanged(old, new)
    assert old[:same] == new[:same]
    assert same in {len(old), len(new)} or old[same] != new[same]
