"""`turnwise evaluate conversational-search`."""

from pathlib import Path

from turnwise.models.evaluation.conversational_search import evaluate_search, read_search
from turnwise.models.texts import write_count
from turnwise.service.candidate_files import CandidateReader
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
    rows = CandidateReader().read_files(passages)
    questions = read_search(data, {row.id: row.candidate.text for row in rows})
    encoders = load_encoders(compared)
    results = list(evaluate_search(encoders, questions, utterances, words))
    note = (
        f"{write_count(len(questions.questions), 'question')}, "
        f"{write_count(len(questions.passages), 'passage')}. Joined utterances and running query "
        f"read the last {utterances} utterances, and the first {words} words of those of other "
        "speakers."
    )
    report("conversational-search", [*data, *passages], results, out, note)
