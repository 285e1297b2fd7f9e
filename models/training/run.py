"""Runs the stages of a recipe: `turnwise train`."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise.models.card import update_card
from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.encoder.torch import UtteranceEncoder, check_model
from turnwise.models.errors import TrainingError
from turnwise.models.evaluation.split import LENGTHS
from turnwise.models.extras import require
from turnwise.models.training.calibration import calibrate
from turnwise.models.training.cascade import add_reranker
from turnwise.models.training.config import (
    Config,
    CrossEncoderConfig,
    EncoderConfig,
    IoIConfig,
    MultilingualConfig,
    PairwiseConfig,
    read_stages,
)
from turnwise.models.training.corpora import Find, finder, replace_corpora, validation_dialogues
from turnwise.models.training.example_space import add_example_space
from turnwise.models.training.fusion import calibrate_examples, keep_examples, read_answer_data
from turnwise.models.training.learners.cross_encoder import CrossEncoderLearner
from turnwise.models.training.learners.encoder import (
    EncoderLearner,
    read_data,
    read_minimal_windows,
)
from turnwise.models.training.learners.ioi import IoILearner
from turnwise.models.training.learners.multilingual import MultilingualLearner
from turnwise.models.training.learners.pairwise import PairwiseLearner
from turnwise.models.training.trainer import Learner, OnProgress, fit, silent

SERVED = "served"
"""The folder of a run with the base and its new re-ranker, which a service loads as its model."""

_log = logging.getLogger("turnwise.training")


def run(
    config_file: Path,
    data: Sequence[Path],
    out: Path,
    *,
    form: DialogueFormat | None = None,
    small: bool = False,
    resume: bool = False,
    report: OnProgress = silent,
) -> Path:
    """Train the model of a configuration; return the folder of the best one.

    Args:
        config_file: The configuration; its `kind` chooses the kind of model.
        data: Folders where the corpora that it names are looked up; or files of dialogues to
            train on instead. A file whose path ends with the name of a corpus keeps that
            corpus's settings, such as the dialogues that it leaves out.
        out: Folder for everything that the run writes. The run of a cross-encoder writes `served`,
            its base with the new re-ranker. The stage before the last one has the
            folder `base` in it, the stage before that one `base/base`, and so on.
        form: The columns and the encoding of these files; by default the usual ones.
        small: Whether the values of the table `[small]` replace those of the file.
        resume: Whether to continue from an earlier run's checkpoint in `out`.
        report: Called after every step.

    Raises:
        ConfigError: The configuration is wrong.
        DataError: A corpus is missing or malformed.
        ModelError: The base cannot be loaded.
        TrainingError: The run diverged or would replace its base, or the checkpoint is of another
            run.
        TurnwiseError: A package that is needed is not installed.
    """
    stages = read_stages(config_file, small=small)
    require("matplotlib")
    if isinstance(stages[-1], IoIConfig):
        require("gensim")
    find = finder([path for path in data if path.is_dir()])
    if files := [path for path in data if not path.is_dir()]:
        stages = [
            s.model_copy(update={"data": replace_corpora(s.data, files, form)}) for s in stages
        ]
    return train_stages(stages, out, find=find, resume=resume, report=report)


def train_stages(
    stages: Sequence[Config], out: Path, *, find: Find, resume: bool, report: OnProgress
) -> Path:
    """Train the stages of a run, each from the model of the stage before it."""
    folders = [out]
    for _ in stages[1:]:
        folders.insert(0, folders[0] / "base")
    start = getattr(stages[0], "base", "")
    if start:  # not after minutes of reading
        check_model(start)
        if Path(start).resolve() in {(folder / "model").resolve() for folder in folders}:
            raise TrainingError(f"the run would replace its base '{start}': choose another --out")
    begun = any((folder / "checkpoint").is_dir() for folder in folders)
    if resume and not begun:
        _log.warning("%s has no checkpoint: the run starts from the beginning", out)
    elif begun and not resume:
        _log.warning("the run in %s is replaced; --resume would have continued it", out)
    check_later_data(stages, find)
    base: Path | None = None
    for folder, stage in zip(folders, stages, strict=True):
        config = stage.model_copy(update={"base": str(base)}) if base else stage
        successor = folder.parent if folder != out else None
        base = fit(
            make_learner(config, find), folder, resume=resume, report=report, successor=successor
        )
    model = out / "model"
    last = stages[-1]
    if isinstance(last, EncoderConfig):
        complete_encoder(model, last, find, start)
    if isinstance(last, CrossEncoderConfig):
        add_reranker(model, last, find, out / SERVED)
    if isinstance(last, EncoderConfig | MultilingualConfig):
        update_card(model, "encoder", UtteranceEncoder(model).facts)
    return model


def check_later_data(stages: Sequence[Config], find: Find) -> None:
    """Report mistakes in what is read later now, not after hours of training."""
    for later in stages[1:]:
        if isinstance(later, EncoderConfig):
            read_data(later, find)
            read_minimal_windows(later, find)
            validation_dialogues(later.validation, find, min(LENGTHS))
    last = stages[-1]
    if isinstance(last, EncoderConfig):
        read_answer_data(last.answers, find)


def complete_encoder(model: Path, config: EncoderConfig, find: Find, start: str) -> None:
    """Fit the confidence of a trained encoder, and its use of examples.

    Without answers to fit it on, the encoder uses examples as the start of the run does.
    """
    calibrate(model, config, find)
    if config.answers.pools:
        add_example_space(model, config, find)
        calibrate_examples(model, config, find)
    else:
        keep_examples(model, start)


def make_learner(config: Config, find: Find) -> Learner[Any]:
    """Return the learner of a run, with the data that it names.

    Raises:
        DataError: A file of the data is missing or malformed.
        ModelError: The base cannot be loaded.
    """
    if isinstance(config, EncoderConfig):
        return EncoderLearner(config, find)
    if isinstance(config, PairwiseConfig):
        return PairwiseLearner(config, find)
    if isinstance(config, CrossEncoderConfig):
        return CrossEncoderLearner(config, find)
    if isinstance(config, MultilingualConfig):
        return MultilingualLearner(config, find)
    return IoILearner(config, find)
