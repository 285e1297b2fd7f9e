"""A training run from its file: where the corpora are, and what validates it."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from sentence_transformers import SentenceTransformer

from models.dialogue import Dialogue
from models.encoder import UtteranceEncoder
from models.errors import ConfigError, TurnwiseError
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
from models.evaluation.split import LENGTHS
from models.extras import require
from models.roles import Kind
from models.training.config import Corpus, TrainConfig, read_config, read_toml
from models.training.corpora import Find, finder, validation_dialogues
from models.training.ioi import train_ioi
from models.training.loop import Report, silent
from models.training.pairwise import train_pairwise
from models.training.reranker_config import IoIConfig, PairCorpus, PairwiseConfig
from models.training.trainer import train

T = TypeVar("T")

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

    A configuration whose base is another one (`ccl.toml`) trains that first, in `out/base`.

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
        TurnwiseError: A package that is needed is not installed.
    """
    config = read_any_config(config_file)
    require("matplotlib", *(["gensim"] if isinstance(config, IoIConfig) else []))
    files = [str(path) for path in data if not path.is_dir()]
    folders = [path for path in data if path.is_dir()]
    find = finder(folders)
    if isinstance(config, TrainConfig):
        if files:
            corpora = tuple(Corpus(path=path) for path in files)
            config = config.model_copy(update={"data": corpora})
        if config.base.endswith(".toml"):
            for path in config.files():  # what is missing is told now, not when the base is trained
                find(path)
            first = config_file.parent / config.base
            if first.resolve() == config_file.resolve():
                raise ConfigError("is this configuration itself", str(config_file), "base")
            base = run(first, folders, out / "base", resume=resume, report=report)
            config = config.model_copy(update={"base": str(base)})
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
    """Dialogues, and the planning problems that they give, where they are long enough for any."""

    dialogues: list[Dialogue]
    problems: list[Problem]
    goal_sets: list[GoalSet]

    def measure(self, encoder: UtteranceEncoder) -> dict[str, float]:
        """Return the average rank of each task that there is data for, by its best system."""
        measured = {"average_rank": min(average_ranks(encoder, self.dialogues).values())}
        if self.problems:
            ranks = short_term_average_rank(encoder, self.problems)
            measured["short_term_rank"] = min(ranks.values())
        if self.goal_sets:
            measured["long_term_rank"] = long_term_average_rank(encoder, self.goal_sets)
        return measured


def validator(
    config: TrainConfig, find: Find
) -> Callable[[SentenceTransformer], dict[str, float]] | None:
    """Return what measures a model while it learns; None without corpora for it.

    The first metric chooses the checkpoint: the average rank of the next utterance by the best
    aggregation, mean over the corpora. Planning is watched beside it.

    Raises:
        DataError: A corpus has no dialogue that is long enough for the first.
    """
    if not config.validation.paths:
        return None
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
    """Make the planning problems of dialogues; hard negatives are retrieved with the base."""
    propose = hard_negatives(base, dialogues, SHORT_TERM_LENGTHS)
    problems = partial(make_problems, dialogues, SHORT_TERM_LENGTHS, SHORT_TERM_DISTANCES, propose)
    goal_sets = partial(make_goal_sets, dialogues)
    return ValidationSplit(dialogues, _if_long_enough(problems), _if_long_enough(goal_sets))


def _if_long_enough(make: Callable[[], list[T]]) -> list[T]:
    try:
        return make()
    except TurnwiseError:
        return []
