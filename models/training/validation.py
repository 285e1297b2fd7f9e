"""Validation: how well a model does while it learns, on dialogues drawn from held-out files.

The first metric chooses the checkpoint. For an encoder it is the rank in all of its tasks, for a
re-ranker the average rank of the true response.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from turnwise.models.data import Dialogue
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import TurnwiseError, name_files
from turnwise.models.evaluation.long_term import (
    ORDERS,
    GoalSet,
    long_term_average_rank,
    make_goal_sets,
)
from turnwise.models.evaluation.metrics import Scores, ranks_of
from turnwise.models.evaluation.next_utterance import measure_by_length, ranks_among_length
from turnwise.models.evaluation.ranking import Building, RankingExample, build_ranking
from turnwise.models.evaluation.short_term import (
    ShortTermExample,
    make_examples,
    retrieved_replies,
    short_term_average_rank,
)
from turnwise.models.evaluation.split import LENGTHS, Split, encode_split, make_split
from turnwise.models.evaluation.systems import pairwise_system, recommended_system
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.rerankers.cross_encoder import CrossEncoder
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.scores import Aggregation
from turnwise.models.training.config import (
    CrossEncoderConfig,
    EncoderConfig,
    IoIConfig,
    MultilingualConfig,
    PairwiseConfig,
)
from turnwise.models.training.corpora import Find, validation_dialogues

SHORT_TERM_LENGTHS = (2, 5)
SHORT_TERM_DISTANCES = (1, 2, 3, 4)


@dataclass(frozen=True)
class ValidationSplit:
    """Dialogues, and their planning examples where they are long enough for any."""

    dialogues: list[Dialogue]
    examples: list[ShortTermExample]
    goal_sets: list[GoalSet]

    def measure(self, encoder: UtteranceEncoder, aggregation: Aggregation) -> dict[str, float]:
        """Return the average rank of each task that there is data for.

        The next utterance is chosen by the aggregation, a reply toward a goal by C3L eq. 4 with its
        exact [B2] (CCL and plain encoders: by their one cosine), the order of goals by the chain.
        `relative_rank` is the mean over the tasks of the average rank, divided by that of random
        choice; so no task counts more because it has more candidates.
        """
        system = recommended_system(encode_split(encoder, self.split), aggregation)
        metrics = measure_by_length(ranks_among_length(system, self.split), self.split)
        measured = {"average_rank": metrics["average_rank"]}
        if self.examples:
            measured["short_term_rank"] = short_term_average_rank(encoder, self.examples)
        if self.goal_sets:
            measured["long_term_rank"] = long_term_average_rank(encoder, self.goal_sets)
        relative = fmean(rank / self.of_chance[name] for name, rank in measured.items())
        return {"relative_rank": relative, **measured}

    @cached_property
    def split(self) -> Split:
        """The contexts of all lengths."""
        return make_split(self.dialogues, full_pool=False)

    @cached_property
    def of_chance(self) -> dict[str, float]:
        """The average rank of a random choice, for each task that has data."""
        by_length = Counter(len(context.utterances) for context in self.split.contexts)
        chance = {"average_rank": fmean((n + 1) / 2 for n in by_length.values())}
        if self.examples:
            chance["short_term_rank"] = fmean(1 + len(e.candidates) / 2 for e in self.examples)
        if self.goal_sets:
            chance["long_term_rank"] = (len(ORDERS) + 1) / 2
        return chance


def encoder_validator(
    config: EncoderConfig | MultilingualConfig, find: Find, aggregation: Aggregation
) -> Callable[[UtteranceEncoder], dict[str, float]]:
    """Return a function that measures an encoder: means over the files, then the metrics of each.

    Without files there are no metrics.

    Raises:
        DataError: A file has no dialogue that is long enough.
    """
    if not config.validation.paths:
        return lambda _: {}
    base = UtteranceEncoder(config.base, precision=config.precision)
    files = validation_dialogues(config.validation, find, min(LENGTHS))
    splits = {path: make_validation_split(dialogues, base) for path, dialogues in files.items()}

    def validate(encoder: UtteranceEncoder) -> dict[str, float]:
        measured = {path: split.measure(encoder, aggregation) for path, split in splits.items()}
        of_files = {
            f"{path}/{name}": value
            for path, metrics in measured.items()
            for name, value in metrics.items()
        }
        return means(measured.values()) | (of_files if len(measured) > 1 else {})

    return validate


def pairwise_validator(
    config: PairwiseConfig, find: Find
) -> Callable[[PairwiseModel], dict[str, float]]:
    """Return a function that measures a pairwise model: mean metrics over the files.

    Raises:
        DataError: A file has no dialogue that is long enough.
    """
    files = validation_dialogues(config.validation, find, min(LENGTHS))
    splits = [make_split(dialogues, full_pool=False) for dialogues in files.values()]
    names = ("average_rank", "r@1", "r@10", "mrr")

    def validate(model: PairwiseModel) -> dict[str, float]:
        ranks = (ranks_among_length(pairwise_system(model, split), split) for split in splits)
        measured = map(measure_by_length, ranks, splits)
        return means({name: metrics[name] for name in names} for metrics in measured)

    return validate


def ioi_validator(config: IoIConfig, find: Find) -> Callable[[IoI], dict[str, float]]:
    """Return a function that measures a network: mean metrics over the files.

    Each dialogue gives one context, with its response among nine random ones of the same file.
    They are the same in every run.

    Raises:
        DataError: A file is too short, or has too few distinct utterances.
    """
    examples = []
    for path, dialogues in validation_dialogues(config.validation, find, 1).items():
        with name_files([find(path)]):
            examples.append(list(build_ranking(dialogues, Building(context=1))))

    def validate(model: IoI) -> dict[str, float]:
        model.network.eval()

        def scores(example: RankingExample) -> Scores:
            return model.scores([said.text for said in example.context], example.candidates)

        return means(response_metrics(scores, of_file) for of_file in examples)

    return validate


def cross_encoder_validator(
    config: CrossEncoderConfig, find: Find, encoder: UtteranceEncoder
) -> Callable[[CrossEncoder], dict[str, float]]:
    """Return a function that measures a cross-encoder: mean metrics over the files.

    Each dialogue gives one context, with its response among nine wrong ones from the sources that
    the configuration names.

    Raises:
        DataError: A file is too short, or has too few distinct utterances.
    """
    examples = []
    how = Building(config.sources, context=1)
    for path, dialogues in validation_dialogues(config.validation, find, 1).items():
        with name_files([find(path)]):
            examples.append(list(build_ranking(dialogues, how, encoder)))

    def validate(model: CrossEncoder) -> dict[str, float]:
        def scores(example: RankingExample) -> Scores:
            context = model.read_context(example.context, example.speaker)
            return model.scores(context, example.candidates)

        return means(response_metrics(scores, of_file) for of_file in examples)

    return validate


def response_metrics(
    scores: Callable[[RankingExample], Scores], examples: list[RankingExample]
) -> dict[str, float]:
    """Return average rank, R10@1 and mean reciprocal rank of the true responses.

    Args:
        scores: Returns the scores (C,) of an example's candidates.
        examples: The examples.
    """
    of_true = ranks_of(map(scores, examples), [example.labels.index(1) for example in examples])
    return {
        "average_rank": float(of_true.expected.mean()),
        **of_true.hits((1,), "r10"),
        "mrr": float(of_true.reciprocal.mean()),
    }


def means(measured: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over the files that have it."""
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    for metrics in measured:
        for name, value in metrics.items():
            by_name[name].append(value)
    return {name: fmean(values) for name, values in by_name.items()}


def make_validation_split(dialogues: list[Dialogue], base: UtteranceEncoder) -> ValidationSplit:
    """Make the planning examples of dialogues; hard negatives are retrieved with the base."""
    propose = retrieved_replies(base, dialogues, SHORT_TERM_LENGTHS)
    examples: list[ShortTermExample] = []
    goal_sets: list[GoalSet] = []
    with suppress(TurnwiseError):  # no dialogue is long enough
        examples = make_examples(dialogues, SHORT_TERM_LENGTHS, SHORT_TERM_DISTANCES, propose)
    with suppress(TurnwiseError):
        goal_sets = make_goal_sets(dialogues)
    return ValidationSplit(dialogues, examples, goal_sets)
