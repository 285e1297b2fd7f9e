import pytest

from turnwise.models.data import Dialogue
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.long_term_problems import Setting, make_goal_sets


def test_goals_stand_at_a_fixed_distance(dialogues: list[Dialogue]) -> None:
    made = make_goal_sets(dialogues[:1], [Setting(2, 2, 1)])[0]
    said = dialogues[0].utterances
    assert made.context == said[:2]
    assert made.goals == (said[3], said[5], said[7])


def test_a_dialogue_one_distance_longer_than_its_goals_is_long_enough(
    dialogues: list[Dialogue],
) -> None:
    sets = make_goal_sets(dialogues, [Setting(2, 2, 0), Setting(2, 3, 0)])
    lengths = [len(d.utterances) for d in dialogues]
    enough = [sum(n >= 9 for n in lengths), sum(n >= 12 for n in lengths)]
    assert [sum(s.setting.distance == d for s in sets) for d in (2, 3)] == enough


def test_dialogues_that_are_all_too_short_are_refused(dialogues: list[Dialogue]) -> None:
    with pytest.raises(TurnwiseError, match="no dialogue is long enough"):
        make_goal_sets(dialogues, [Setting(9, 2, 0)])
