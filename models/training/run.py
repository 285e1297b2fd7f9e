"""A training run from its file: where the corpora are, and what validates it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

from sentence_transformers import SentenceTransformer

from models.dialogue import Dialogue, read_dialogues
from models.encoder import UtteranceEncoder
from models.errors import DataError
from models.evaluation import (
    GoalSet,
    Problem,
    average_ranks,
    hard_negatives,
    long_term_average_rank,
    make_goal_sets,
    make_problems,
    short_term_average_rank,
)
from models.training.config import Corpus, TrainConfig, read_config
from models.training.trainer import Progress, train

SHORT_TERM_LENGTHS = (2, 5)
SHORT_TERM_DISTANCES = (1, 2, 3, 4)


def run(
    config_file: Path,
    data: Sequence[Path],
    out: Path,
    *,
    resume: bool = False,
    report: Callable[[Progress], None] = lambda _: None,
) -> Path:
    """Train as a configuration says; return the folder of the best model.

    Args:
        config_file: The configuration.
        data: Folders where the corpora that it names are looked up; or files of dialogues,
            which take the place of the corpora that it names.
        out: Folder for all that the run writes.
        resume: Whether to go on from an earlier run's checkpoint in `out`.
        report: Called after every step.

    Raises:
        ConfigError: The configuration is wrong.
        DataError: A corpus is not there, or does not hold what it should.
        ModelError: The base cannot be loaded.
    """
    config = read_config(config_file)
    files = [path for path in data if not path.is_dir()]
    if files:
        corpora = tuple(Corpus(path=str(path)) for path in files)
        config = config.model_copy(update={"data": corpora})
    find = finder([path for path in data if path.is_dir()])
    validate = validator(config, find)
    return train(config, out, find=find, validate=validate, report=report, resume=resume)


def finder(folders: Sequence[Path]) -> Callable[[str], Path]:
    """Return how to find a file that a configuration names: as it stands, or in a folder."""

    def find(name: str) -> Path:
        for path in (Path(name), *(folder / name for folder in folders)):
            if path.is_file():
                return path
        raise DataError("no such file, here or in a folder given with --data", name)

    return find


@dataclass(frozen=True, slots=True)
class ValidationSplit:
    """Dialogues, and the planning problems that they give."""

    dialogues: list[Dialogue]
    problems: list[Problem]
    goal_sets: list[GoalSet]

    def measure(self, encoder: UtteranceEncoder) -> dict[str, float]:
        """Return the average rank of all three tasks, each by the best system of the encoder."""
        return {
            "average_rank": min(average_ranks(encoder, self.dialogues).values()),
            "short_term_rank": min(short_term_average_rank(encoder, self.problems).values()),
            "long_term_rank": long_term_average_rank(encoder, self.goal_sets),
        }


def validator(
    config: TrainConfig, find: Callable[[str], Path]
) -> Callable[[SentenceTransformer], dict[str, float]] | None:
    """Return what measures a model while it learns; None without corpora for it.

    The first metric chooses the checkpoint: the average rank of the next utterance by the best
    aggregation, mean over the corpora. Planning is watched beside it.

    Raises:
        TurnwiseError: A corpus has no dialogue that is long enough.
    """
    if not config.validation.paths:
        return None
    base = UtteranceEncoder(config.base, precision=config.precision)
    splits = {
        path: make_validation_split(find(path), config.validation.dialogues, base)
        for path in config.validation.paths
    }

    def validate(model: SentenceTransformer) -> dict[str, float]:
        encoder = UtteranceEncoder(model, precision=config.precision)
        measured = {path: split.measure(encoder) for path, split in splits.items()}
        names = next(iter(measured.values()))
        means = {name: fmean(metrics[name] for metrics in measured.values()) for name in names}
        return means | {
            f"{path}/{name}": value
            for path, metrics in measured.items()
            for name, value in metrics.items()
        }

    return validate


def make_validation_split(path: Path, count: int, base: UtteranceEncoder) -> ValidationSplit:
    """Read the first dialogues of a file; hard negatives are retrieved with the base."""
    dialogues = list(islice(read_dialogues(path), count))
    propose = hard_negatives(base, dialogues, SHORT_TERM_LENGTHS)
    problems = make_problems(dialogues, SHORT_TERM_LENGTHS, SHORT_TERM_DISTANCES, propose)
    return ValidationSplit(dialogues, problems, make_goal_sets(dialogues))
