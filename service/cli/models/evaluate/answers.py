"""`turnwise evaluate answers`."""

from pathlib import Path

from turnwise.models.data import Record
from turnwise.models.dialogue_files import DialogueFormat, read_dialogues
from turnwise.models.errors import name_files
from turnwise.models.evaluation.answers import DRAWS, Answer, evaluate_answers, read_answer
from turnwise.models.evaluation.dialogue_answers import (
    ask_in_sessions,
    evaluate_dialogue_answers,
    find_answers,
)
from turnwise.models.text_files import open_binary
from turnwise.models.texts import write_count
from turnwise.service.candidate_files import CandidateReader, Columns, Row, read_records
from turnwise.service.cli.models.evaluate.loading import load_encoders
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report


def measure(
    data: list[Path],
    outside: list[Path],
    dialogues: list[Path],
    compared: Compared,
    *,
    form: DialogueFormat,
    examples: list[int],
    covered: float,
    out: Path | None,
) -> None:
    """Find the answer to a question when other phrasings of it are examples of the answer."""
    pool = read_pool(data)
    answers = [each for each in pool if len(each.questions) > 1]
    others = [each.text for each in pool if len(each.questions) < 2]
    questions = [row.candidate.text for row in CandidateReader().read_files(outside)]
    encoders = load_encoders(compared)
    with name_files(data):
        rows = list(
            evaluate_answers(encoders, answers, questions, examples, covered, others=others)
        )
        sessions = {"later in sessions": ask_in_sessions(answers, questions)}
        rows += evaluate_dialogue_answers(encoders, sessions, examples, covered)
    with name_files(dialogues):
        pools = {
            "/".join(file.parts[-2:]): find_answers(list(read_dialogues(file, form)))
            for file in dialogues
        }
        rows += evaluate_dialogue_answers(encoders, pools, examples, covered)
    note = (
        f"{write_count(len(answers), 'answer')}, {write_count(len(questions), 'question')} "
        f"outside, {DRAWS} draws of examples."
    )
    if others:
        note += (
            f" Nobody asks for {write_count(len(others), 'other')} with fewer than two examples."
        )
    report("answers", [*data, *outside, *dialogues], rows, out, note)


def read_pool(files: list[Path]) -> list[Answer]:
    """Return the answers of files of candidates, the wordings of a group as one.

    A record may also have the wordings of an answer as `texts`.

    Raises:
        DataError: A file cannot be read, or a record is neither.
    """
    reader = CandidateReader()
    answers: list[Answer] = []
    rows: list[Row] = []
    for path in files:
        with open_binary(path) as file:
            for line, record in read_records(file, str(path), Columns()):
                if "texts" in record:
                    answers.append(read_answer(Record(record, str(path), line)))
                else:
                    rows.append(reader.read_record(record, str(path), line))
    wordings: dict[str, list[Row]] = {}
    for row in reader.merge(rows):
        wordings.setdefault(row.candidate.group or row.id, []).append(row)
    for name, group in wordings.items():
        questions = (example for row in group for example in row.candidate.examples)
        answers.append(Answer(name, group[0].candidate.text, tuple(dict.fromkeys(questions))))
    return answers
