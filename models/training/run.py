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
from models.roles import Kind, kind_of
from models.training.config import TrainConfig, read_config, read_toml
from models.training.corpora import Find, finder, in_place_of, validation_dialogues
from models.training.ioi import train_ioi
from models.training.loop import Report, silent
from models.training.pairwise import train_pairwise
from models.training.reranker_config import IoIConfig, PairwiseConfig
from models.training.trainer import read_data, train

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

    A configuration whose base is another one (`ccl.toml`) trains that first, in `out/base`, once
    the data of both has been read.

    Args:
        config_file: The configuration; its `kind` tells what is trained.
        data: Folders where the corpora that it names are looked up; or files of dialogues,
            which take the place of the corpora that it and its base name. What one of these
            leaves out stays out of a file whose path ends with its name.
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
    files = [path for path in data if not path.is_dir()]
    find = finder([path for path in data if path.is_dir()])
    if isinstance(config, TrainConfig):
        stages = read_stages(config_file)
        if files:
            stages = [
                stage.model_copy(update={"data": in_place_of(stage.data, files)})
                for stage in stages
            ]
        return train_stages(stages, out, find, resume=resume, report=report)
    if files:
        config = config.model_copy(update={"data": in_place_of(config.data, files)})
    if isinstance(config, PairwiseConfig):
        return train_pairwise(config, out, find=find, report=report, resume=resume)
    return train_ioi(config, out, find=find, report=report, resume=resume)


def read_stages(config_file: Path, later: tuple[Path, ...] = ()) -> list[TrainConfig]:
    """Read the configuration of an encoder after that of its base, if it has one, and so on.

    Args:
        config_file: The configuration.
        later: Those that start from it.

    Returns:
        The configurations in the order in which they are trained.

    Raises:
        ConfigError: One is wrong, is none of an encoder, starts in the end from itself, or cannot
            start from what its base will be.
    """
    config, name = read_any_config(config_file), str(config_file)
    if not isinstance(config, TrainConfig):
        raise ConfigError("no encoder, which an encoder could start from", name, "kind")
    if not config.base.endswith(".toml"):
        return [config]
    base, later = config_file.parent / config.base, (*later, config_file.resolve())
    if base.resolve() in later:
        raise ConfigError(f"leads in a circle, back to '{config.base}'", name, "base")
    stages = read_stages(base, later)
    kind = stages[-1].kind
    if kind_of({*kind.tokens, *config.kind.tokens}) is not config.kind:
        raise ConfigError(
            f"is a {kind} encoder and cannot become a {config.kind} one", name, "base"
        )
    return [*stages, config]


def train_stages(
    stages: Sequence[TrainConfig], out: Path, find: Find, *, resume: bool, report: Report
) -> Path:
    """Train encoders, each from the one before it, and each in the folder `base` of the next."""
    for later in stages[1:]:  # what is wrong there is told now, not when its base is trained
        read_data(later, find)
        validation_dialogues(later.validation, find, min(LENGTHS))
    folders = [out.joinpath(*["base"] * depth) for depth in reversed(range(len(stages)))]
    model = stages[0].base
    for folder, stage in zip(folders, stages, strict=True):
        config = stage.model_copy(update={"base": model})
        trained = train(
            config,
            folder,
            find=find,
            validate=validator(config, find),
            report=report,
            resume=resume,
            base_of=folder.parent if folder != out else None,
        )
        model = str(trained)
    return Path(model)


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
