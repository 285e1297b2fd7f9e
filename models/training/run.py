"""A training run from its file: where the corpora are, and what validates it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

from sentence_transformers import SentenceTransformer

from models.dialogue import Dialogue, read_dialogues
from models.encoder import UtteranceEncoder
from models.errors import ConfigError
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
from models.roles import Kind
from models.training.config import Corpus, TrainConfig, read_config, read_toml
from models.training.corpora import Find, finder
from models.training.ioi import train_ioi
from models.training.loop import Report, silent
from models.training.pairwise import train_pairwise
from models.training.reranker_config import IoIConfig, PairCorpus, PairwiseConfig
from models.training.trainer import train

SHORT_TERM_LENGTHS = (2, 5)
SHORT_TERM_DISTANCES = (1, 2, 3, 4)

Config = TrainConfig | PairwiseConfig | IoIConfig


def run(
    config_file: Path,
    data: Sequence[Path],
    out: Path,
    *,
    resume: bool = False,
    report: Report = silent,
) -> Path:
    """Train as a configuration says; return the folder of the best model.

    Args:
        config_file: The configuration; its `kind` tells what is trained.
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
    config = read_any_config(config_file)
    files = [str(path) for path in data if not path.is_dir()]
    find = finder([path for path in data if path.is_dir()])
    if isinstance(config, TrainConfig):
        if files:
            corpora = tuple(Corpus(path=path) for path in files)
            config = config.model_copy(update={"data": corpora})
        validate = validator(config, find)
        return train(config, out, find=find, validate=validate, report=report, resume=resume)
    if files:
        of_pairs = tuple(PairCorpus(path=path) for path in files)
        config = config.model_copy(update={"data": of_pairs})
    if isinstance(config, PairwiseConfig):
        return train_pairwise(config, out, find=find, report=report, resume=resume)
    return train_ioi(config, out, find=find, report=report, resume=resume)


def read_any_config(path: Path) -> Config:
    """Read the configuration of whatever kind a file names.

    Raises:
        ConfigError: The kind is not known, or the file does not hold what that kind needs.
    """
    kind = read_toml(path).get("kind")
    if kind == "pairwise":
        return read_config(path, PairwiseConfig)
    if kind == "ioi":
        return read_config(path, IoIConfig)
    known = [*map(str, Kind), "pairwise", "ioi"]
    if isinstance(kind, str) and kind not in known:
        raise ConfigError(f"must be one of {', '.join(known)}", str(path), "kind")
    return read_config(path, TrainConfig)


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
    config: TrainConfig, find: Find
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
