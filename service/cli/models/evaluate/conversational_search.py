"""`turnwise evaluate conversational-search`."""

from pathlib import Path

from turnwise.models.evaluation.conversational_search import evaluate_search, read_search
from turnwise.service.cli.models.evaluate.loading import load_encoders
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report


def measure(
    data: list[Path],
    passages: list[Path],
    compared: Compared,
    *,
    utterances: int,
    words: int,
    out: Path | None,
) -> None:
    """Find the passages of questions that need their conversation."""
    questions = read_search(data, passages)
    encoders = load_encoders(compared)
    rows = list(evaluate_search(encoders, questions, utterances, words))
    note = (
        f"{len(questions.questions)} questions, {len(questions.passages)} passages. Joined "
        f"utterances and running query read the last {utterances} utterances, and the first "
        f"{words} words of those of other speakers."
    )
    report("conversational-search", [*data, *passages], rows, out, note)
