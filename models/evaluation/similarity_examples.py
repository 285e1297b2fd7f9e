"""Files of conversational similarity: pairs with a score, and questions with choices (GiCCS)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from turnwise.models.data import Record, Utterance, read_records
from turnwise.models.errors import DataError
from turnwise.models.evaluation.split import next_speaker, read_context


@dataclass(frozen=True, slots=True)
class Said:
    """A text that is said, or may be said, after a context, which may be empty."""

    context: tuple[Utterance, ...]
    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences in one context, and how similar people find them.

    Attributes:
        said: The first sentence, in the context.
        other: The second sentence.
        score: Higher is more similar, on any scale.
        domain: The topic of the dialogue; "" if the file names none.
        where: File and line.
    """

    said: Said
    other: str
    score: float
    domain: str
    where: str

    @property
    def candidates(self) -> tuple[str, ...]:
        """The texts to compare the first sentence with."""
        return (self.other,)


@dataclass(frozen=True, slots=True)
class Question:
    """A last turn and choices; one choice is most similar to it.

    Attributes:
        said: The last turn, in its context.
        candidates: The choices.
        answer: Place of the right one.
        domain: The topic of the dialogue; "" if the file names none.
        where: File and line.
    """

    said: Said
    candidates: tuple[str, ...]
    answer: int
    domain: str
    where: str


def read_pairs(paths: Sequence[str | Path], limit: int | None = None) -> list[Pair]:
    """Read similarity files as one, or their first `limit` pairs.

    A line is `{"context": [...], "sentence1", "sentence2", "score", "domain"?}`. An utterance of
    the context, which may be empty, is a text or `{"speaker", "text"}`; where speakers are not
    given, they alternate. The other speaker says the sentences, not that of the last utterance.

    Raises:
        DataError: A file cannot be read or does not hold such pairs, or there is none.
    """
    return [_pair(record) for record in _records(paths, limit)]


def read_questions(paths: Sequence[str | Path], limit: int | None = None) -> list[Question]:
    """Read files of multiple-choice questions as one, or their first `limit` questions.

    A line is `{"context": [...], "choices": [...], "answer": 0, "domain"?}`. `answer` is the place
    of the choice that is most similar to the last utterance of the context.

    Raises:
        DataError: A file cannot be read or does not hold such questions, or there is none.
    """
    return [_question(record) for record in _records(paths, limit)]


def _records(paths: Sequence[str | Path], limit: int | None) -> list[Record]:
    records = list(islice(chain.from_iterable(map(read_records, paths)), limit))
    if not records:
        raise DataError("no example in it", ", ".join(map(str, paths)))
    return records


def texts_of_examples(examples: Iterable[Pair | Question]) -> Iterator[tuple[str, str]]:
    """Yield each text with its file, line and field."""
    for item in examples:
        yield from ((text, f'{item.where}, field "{field}"') for text, field in _texts(item))


def _pair(record: Record) -> Pair:
    context = () if record.get("context") == [] else read_context(record, "context")
    speaker = next_speaker(context) if context else "A"
    return Pair(
        said=Said(context, speaker, record.text("sentence1")),
        other=record.text("sentence2"),
        score=record.number("score"),
        domain=_domain(record),
        where=record.where,
    )


def _question(record: Record) -> Question:
    *context, last = read_context(record, "context")
    choices, answer = record.texts("choices"), record.get("answer")
    if len(choices) < 2:
        raise record.error("choices", "expected at least two")
    if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer < len(choices):
        raise record.error("answer", f"expected a whole number from 0 to {len(choices) - 1}")
    said = Said(tuple(context), last.speaker, last.text)
    return Question(said, choices, answer, _domain(record), record.where)


def _domain(record: Record) -> str:
    return record.text("domain") if record.fields.get("domain") is not None else ""


def _texts(item: Pair | Question) -> Iterator[tuple[str, str]]:
    yield from ((utterance.text, "context") for utterance in item.said.context)
    if isinstance(item, Pair):
        yield from ((item.said.text, "sentence1"), (item.other, "sentence2"))
    else:
        yield (item.said.text, "context")
        yield from ((text, "choices") for text in item.candidates)
