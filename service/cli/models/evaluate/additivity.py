"""`turnwise evaluate additivity`."""

from pathlib import Path

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.errors import name_files
from turnwise.models.evaluation.additivity import evaluate_additivity
from turnwise.service.cli.models.evaluate.loading import load_encoders
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report
from turnwise.service.cli.options import read_files


def measure(
    data: list[Path],
    form: DialogueFormat,
    compared: Compared,
    *,
    out: Path | None,
    limit: int | None,
) -> None:
    """Compare mixtures of two utterances with their parts."""
    dialogues = read_files(data, limit, form)
    encoders = load_encoders(compared)
    with name_files(data):
        rows = evaluate_additivity(encoders, dialogues)
    report("additivity", data, rows, out)
