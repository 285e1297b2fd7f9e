"""A training run from its file: what it trains, from which base, and on which corpora."""

from collections.abc import Sequence
from pathlib import Path

from turnwise.models.errors import ConfigError
from turnwise.models.evaluation.split import LENGTHS
from turnwise.models.extras import require
from turnwise.models.roles import EncoderKind, encoder_kind
from turnwise.models.training.config import TrainConfig, read_config, read_toml
from turnwise.models.training.corpora import Find, finder, in_place_of, validation_dialogues
from turnwise.models.training.ioi import train_ioi
from turnwise.models.training.loop import Report, silent
from turnwise.models.training.pairwise import train_pairwise
from turnwise.models.training.reranker_config import IoIConfig, PairwiseConfig
from turnwise.models.training.trainer import read_data, train

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
    if encoder_kind({*kind.tokens, *config.kind.tokens}) is not config.kind:
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
            report=report,
            resume=resume,
            successor=folder.parent if folder != out else None,
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
    known = [*map(str, EncoderKind), "pairwise", "ioi"]
    if isinstance(kind, str) and kind not in known:
        raise ConfigError(f"must be one of {', '.join(known)}", str(path), "kind")
    return read_config(path, TrainConfig)
