"""Problems of long-term planning: goals at a fixed distance, in the order that they were said."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import TurnwiseError

GOALS = 3


class Setting(NamedTuple):
    """History length, distance from goal to goal, and how far off the first goal is."""

    history: int
    distance: int
    first_in: int

    def __str__(self) -> str:
        return f"h={self.history} d={self.distance} f={self.first_in}"


SETTINGS = (Setting(2, 2, 0), Setting(2, 2, 1), Setting(2, 2, 2))


@dataclass(frozen=True, slots=True)
class GoalSet:
    """Goals in their true order, after a context."""

    setting: Setting
    context: tuple[Utterance, ...]
    goals: tuple[Utterance, ...]


def make_goal_sets(
    dialogues: Iterable[Dialogue], settings: Iterable[Setting] = SETTINGS
) -> list[GoalSet]:
    """Take the goals at `history + first_in + distance * j` from every dialogue long enough.

    Long enough is one goal distance more than the last goal needs, as in CCL's evaluation, so that
    the same dialogues count.

    Raises:
        TurnwiseError: No dialogue is long enough for any setting.
    """
    dialogues = list(dialogues)
    sets = [
        _goal_set(dialogue, setting)
        for setting in settings
        for dialogue in dialogues
        if len(dialogue.utterances) > setting.history + setting.distance * GOALS + setting.first_in
    ]
    if not sets:
        raise TurnwiseError("no dialogue is long enough for these settings")
    return sets


def _goal_set(dialogue: Dialogue, setting: Setting) -> GoalSet:
    said = dialogue.utterances
    first = setting.history + setting.first_in
    goals = tuple(said[first + setting.distance * j] for j in range(GOALS))
    return GoalSet(setting, said[: setting.history], goals)
