"""Files of conversational similarity: pairs with a score, and questions with choices (GiCCS)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from turnwise.models.data import Record, Utterance, read_records
from turnwise.models.errors import DataError
from turnwise.models.evaluation.histories import next_speaker, read_history


@dataclass(frozen=True, slots=True)
class Said:
    """A text that is said, or might be, after a context of any length, even none."""

    context: tuple[Utterance, ...]
    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences, each said in the same context, and how similar people find them.

    Attributes:
        first: One of them.
        second: The other.
        score: Higher is more similar, on any scale.
        domain: What the dialogue is about; "" where that is not given.
        where: File and line.
    """

    first: Said
    second: Said
    score: float
    domain: str
    where: str


@dataclass(frozen=True, slots=True)
class Question:
    """Which of the choices is most similar to the last turn.

    Attributes:
        last: The last turn, in its context.
        choices: Texts.
        answer: Place of the right one.
        domain: As of a pair.
        where: File and line.
    """

    last: Said
    choices: tuple[str, ...]
    answer: int
    domain: str
    where: str


def read_pairs(paths: Sequence[str | Path], limit: int | None = None) -> list[Pair]:
    """Read similarity files as one, or their first `limit` pairs.

    A line is `{"context": [...], "sentence1", "sentence2", "score", "domain"?}`. An utterance of
    the context, which may be empty, is a text or `{"speaker", "text"}`; where speakers are not
    given, they alternate. The sentences are said by who did not say the last utterance.

    Raises:
        DataError: A file cannot be read or does not hold such pairs, or there is none.
    """
    return [_pair(record) for record in _some(paths, limit)]


def read_questions(paths: Sequence[str | Path], limit: int | None = None) -> list[Question]:
    """Read files of multiple-choice questions as one, or their first `limit` questions.

    A line is `{"context": [...], "choices": [...], "answer": 0, "domain"?}`: the last utterance of
    the context is the one to compare with, and `answer` the place of the choice most similar to it.

    Raises:
        DataError: A file cannot be read or does not hold such questions, or there is none.
    """
    return [_question(record) for record in _some(paths, limit)]


def _some(paths: Sequence[str | Path], limit: int | None) -> Iterator[Record]:
    records: Iterable[Record] = islice(chain.from_iterable(map(read_records, paths)), limit)
    count = 0
    for count, record in enumerate(records, start=1):  # noqa: B007 - the last is the count
        yield record
    if not count:
        raise DataError("nothing in it", ", ".join(map(str, paths)))


def _pair(record: Record) -> Pair:
    context = () if record.get("context") == [] else read_history(record, "context")
    speaker = next_speaker(context) if context else "A"
    return Pair(
        first=Said(context, speaker, record.text("sentence1")),
        second=Said(context, speaker, record.text("sentence2")),
        score=record.number("score"),
        domain=_domain(record),
        where=record.where,
    )


def _question(record: Record) -> Question:
    *context, last = read_history(record, "context")
    choices, answer = record.texts("choices"), record.get("answer")
    if len(choices) < 2:
        raise record.error("choices", "expected at least two")
    if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer < len(choices):
        raise record.error("answer", f"expected a whole number from 0 to {len(choices) - 1}")
    said = Said(tuple(context), last.speaker, last.text)
    return Question(said, choices, answer, _domain(record), record.where)


def _domain(record: Record) -> str:
    return record.text("domain") if record.fields.get("domain") is not None else ""
