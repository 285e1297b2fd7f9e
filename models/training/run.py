"""A training run from its file: where the corpora are, and what validates it."""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean

from sentence_transformers import SentenceTransformer

from models.dialogue import Dialogue, read_dialogues
from models.encoder import UtteranceEncoder
from models.errors import DataError
from models.evaluation import average_ranks, long_term_average_rank, make_goal_sets
from models.training.config import Corpus, TrainConfig, Validation, read_config
from models.training.trainer import Progress, train


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
    validate = validator(config.validation, find, config)
    return train(config, out, find=find, validate=validate, report=report, resume=resume)


def finder(folders: Sequence[Path]) -> Callable[[str], Path]:
    """Return how to find a file that a configuration names: as it stands, or in a folder."""

    def find(name: str) -> Path:
        for path in (Path(name), *(folder / name for folder in folders)):
            if path.is_file():
                return path
        raise DataError("no such file, here or in a folder given with --data", name)

    return find


def validator(
    validation: Validation, find: Callable[[str], Path], config: TrainConfig
) -> Callable[[SentenceTransformer], dict[str, float]] | None:
    """Return what measures a model while it learns; None without corpora for it.

    The first metric chooses the checkpoint: the average rank of the next utterance by the best
    aggregation, mean over the corpora. Planning is watched beside it.
    """
    splits = {
        Path(path).parent.name or path: list(
            islice(read_dialogues(find(path)), validation.dialogues)
        )
        for path in validation.paths
    }
    if not splits:
        return None

    def validate(model: SentenceTransformer) -> dict[str, float]:
        encoder = UtteranceEncoder(model, precision=config.precision)
        measured = {name: _measure(encoder, split) for name, split in splits.items()}
        names = ("average_rank", "long_term_rank")
        means = {name: fmean(metrics[name] for metrics in measured.values()) for name in names}
        return means | {
            f"{corpus}/{name}": value
            for corpus, metrics in measured.items()
            for name, value in metrics.items()
        }

    return validate


def _measure(encoder: UtteranceEncoder, dialogues: Sequence[Dialogue]) -> dict[str, float]:
    return {
        "average_rank": min(average_ranks(encoder, dialogues).values()),
        "long_term_rank": long_term_average_rank(encoder, make_goal_sets(dialogues)),
    }
