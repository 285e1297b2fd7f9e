"""Histories in the files of evaluation."""

from collections.abc import Sequence

from turnwise.models.data import Record, Utterance, merge_runs


def read_history(record: Record, field: str) -> tuple[Utterance, ...]:
    """Return a history that is not empty; where speakers are not given, they alternate.

    An utterance is a text or `{"speaker", "text"}`; consecutive ones of a speaker become one.

    Raises:
        DataError: Something else stands there.
    """
    items = enumerate(record.items(field))
    return merge_runs(_utterance(record, f"{field}[{n}]", item, "AB"[n % 2]) for n, item in items)


def read_utterance(record: Record, field: str, speaker: str) -> Utterance:
    """Return an utterance, of `speaker` where it names none.

    Raises:
        DataError: Something else stands there.
    """
    return _utterance(record, field, record.get(field), speaker)


def next_speaker(context: Sequence[Utterance]) -> str:
    """Return who last spoke before the last speaker, or a name for someone new."""
    last = context[-1].speaker
    others = (said.speaker for said in reversed(context) if said.speaker != last)
    return next(others, "A" if last == "B" else "B")


def _utterance(record: Record, field: str, value: object, speaker: str) -> Utterance:
    if isinstance(value, dict):
        named = record.as_text(f"{field}.speaker", value.get("speaker"))
        return Utterance(named, record.as_text(f"{field}.text", value.get("text")))
    return Utterance(speaker, record.as_text(field, value))
