"""`turnwise evaluate distances`."""

from pathlib import Path

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.errors import name_files
from turnwise.models.evaluation.distances import evaluate_distances
from turnwise.service.cli.models.evaluate.loading import load_encoders
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report
from turnwise.service.cli.options import read_files


def measure(
    data: list[Path],
    form: DialogueFormat,
    compared: Compared,
    *,
    reach: int,
    out: Path | None,
    limit: int | None,
) -> None:
    """Compare utterances with those before and after them."""
    dialogues = read_files(data, limit, form)
    encoders = load_encoders(compared)
    with name_files(data):
        rows = evaluate_distances(encoders, dialogues, reach)
    report("distances", data, rows, out)
