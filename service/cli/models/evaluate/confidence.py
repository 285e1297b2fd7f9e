"""`turnwise evaluate confidence`."""

from pathlib import Path

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.errors import name_files
from turnwise.models.evaluation.confidence import evaluate_confidence, texts_of
from turnwise.service.cli.models.evaluate.loading import load_encoders
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report
from turnwise.service.cli.options import read_files


def measure(
    data: list[Path],
    form: DialogueFormat,
    pool: list[Path],
    compared: Compared,
    *,
    sizes: list[int],
    contexts: int,
    out: Path | None,
    limit: int | None,
) -> None:
    """Compare the confidence of first candidates with how often they are the true reply."""
    dialogues = read_files(data, limit, form)
    encoders = load_encoders(compared)
    more = texts_of(read_files(pool, form=form))
    with name_files(data):
        rows = list(evaluate_confidence(encoders, dialogues, more, sizes, contexts))
    note = "Half of the pools have the true reply, the others the same candidates without it."
    report("confidence", [*data, *pool], rows, out, note)
