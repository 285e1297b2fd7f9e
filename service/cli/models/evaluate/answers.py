"""`turnwise evaluate answers`."""

from pathlib import Path

from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.errors import naming
from turnwise.models.evaluation.answers import (
    DRAWS,
    evaluate_answers,
    read_answers,
    read_questions,
)
from turnwise.models.evaluation.dialogue_answers import evaluate_dialogue_answers, find_answers
from turnwise.service.cli.models.evaluate.loading import load_encoders
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report


def measure(
    data: list[Path],
    outside: list[Path],
    dialogues: list[Path],
    compared: Compared,
    *,
    examples: list[int],
    covered: float,
    out: Path | None,
) -> None:
    """Find the answer to a question when other phrasings of it are examples of the answer."""
    pool = read_answers(data)
    questions = read_questions(outside)
    encoders = load_encoders(compared)
    with naming(data):
        rows = list(evaluate_answers(encoders, pool, questions, examples, covered))
    with naming(dialogues):
        pools = {
            "/".join(file.parts[-2:]): find_answers(list(read_dialogues(file)))
            for file in dialogues
        }
        rows += evaluate_dialogue_answers(encoders, pools, examples, covered)
    note = f"{len(pool)} answers, {len(questions)} questions outside, {DRAWS} draws of examples."
    report("answers", [*data, *outside, *dialogues], rows, out, note)
