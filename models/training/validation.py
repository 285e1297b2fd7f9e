"""What is measured of an encoder while it learns."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TypeVar

from sentence_transformers import SentenceTransformer

from turnwise.models.data import Dialogue
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation import (
    GoalSet,
    ShortTermExample,
    average_ranks,
    long_term_average_rank,
    make_examples,
    make_goal_sets,
    retrieved_replies,
    short_term_average_rank,
)
from turnwise.models.evaluation.split import LENGTHS
from turnwise.models.training.config import TrainConfig
from turnwise.models.training.corpora import Find, validation_dialogues

T = TypeVar("T")

SHORT_TERM_LENGTHS = (2, 5)
SHORT_TERM_DISTANCES = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class ValidationSplit:
    """Dialogues, and the planning examples that they give, where they are long enough for any."""

    dialogues: list[Dialogue]
    examples: list[ShortTermExample]
    goal_sets: list[GoalSet]

    def measure(self, encoder: UtteranceEncoder) -> dict[str, float]:
        """Return the average rank of each task that there is data for, by its best system."""
        measured = {"average_rank": min(average_ranks(encoder, self.dialogues).values())}
        if self.examples:
            ranks = short_term_average_rank(encoder, self.examples)
            measured["short_term_rank"] = min(ranks.values())
        if self.goal_sets:
            measured["long_term_rank"] = long_term_average_rank(encoder, self.goal_sets)
        return measured


def validator(config: TrainConfig, find: Find) -> Callable[[SentenceTransformer], dict[str, float]]:
    """Return what measures a model while it learns; nothing without corpora for it.

    The first metric chooses the checkpoint: the average rank of the next utterance by the best
    aggregation, mean over the corpora. Planning is watched beside it.

    Raises:
        DataError: A corpus has no dialogue that is long enough for the first.
    """
    if not config.validation.paths:
        return lambda _: {}
    base = UtteranceEncoder(config.base, precision=config.precision)
    files = validation_dialogues(config.validation, find, min(LENGTHS))
    splits = {path: make_validation_split(dialogues, base) for path, dialogues in files.items()}

    def validate(model: SentenceTransformer) -> dict[str, float]:
        encoder = UtteranceEncoder(model, precision=config.precision)
        measured = {path: split.measure(encoder) for path, split in splits.items()}
        by_name: defaultdict[str, list[float]] = defaultdict(list)
        for metrics in measured.values():
            for name, value in metrics.items():
                by_name[name].append(value)
        means = {name: fmean(values) for name, values in by_name.items()}
        return means | {
            f"{path}/{name}": value
            for path, metrics in measured.items()
            for name, value in metrics.items()
        }

    return validate


def make_validation_split(dialogues: list[Dialogue], base: UtteranceEncoder) -> ValidationSplit:
    """Make the planning examples of dialogues; hard negatives are retrieved with the base."""
    propose = retrieved_replies(base, dialogues, SHORT_TERM_LENGTHS)
    examples = partial(make_examples, dialogues, SHORT_TERM_LENGTHS, SHORT_TERM_DISTANCES, propose)
    goal_sets = partial(make_goal_sets, dialogues)
    return ValidationSplit(dialogues, _if_long_enough(examples), _if_long_enough(goal_sets))


def _if_long_enough(make: Callable[[], list[T]]) -> list[T]:
    try:
        return make()
    except TurnwiseError:
        return []
