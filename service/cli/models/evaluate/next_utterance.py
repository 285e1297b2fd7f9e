"""`turnwise evaluate next-utterance`."""

from pathlib import Path

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.errors import name_files
from turnwise.models.evaluation.next_utterance import evaluate_next_utterance
from turnwise.models.evaluation.truncation import warn_of_long_dialogues
from turnwise.service.cli.models.evaluate.loading import load_encoders_and_pairwise
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report
from turnwise.service.cli.options import read_files


def measure(
    data: list[Path],
    form: DialogueFormat,
    compared: Compared,
    *,
    lengths: list[int],
    parts: bool,
    out: Path | None,
    limit: int | None,
) -> None:
    """Find the true next utterance after contexts of each length."""
    dialogues = read_files(data, limit, form)
    models = load_encoders_and_pairwise(compared)
    warn_of_long_dialogues(models, data, dialogues, lengths)
    with name_files(data):
        rows = evaluate_next_utterance(models, dialogues, lengths, parts=parts)
    report("next-utterance", data, rows, out)
