"""Conversational search: is the right passage first after a question that needs what came before?

"And how long does it take?" finds nothing by itself. The same encoder searches for a question in
several forms: alone, joined with the utterances before it, as a context of the running query, and
as somebody rewrote it so that it needs no context.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from turnwise.models.data import (
    Record,
    Utterance,
    merge_runs,
    read_id,
    read_records,
    read_utterance,
)
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import DataError
from turnwise.models.evaluation.metrics import Mask, Metrics, group_by_length, search_metrics
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.evaluation.split import (
    Context,
    EncodedSplit,
    Split,
    encode_split,
    next_speaker,
)
from turnwise.models.evaluation.systems import System, lexical_systems, recommended_system, turn_ms
from turnwise.models.evaluation.truncation import warn_of_truncation
from turnwise.models.texts import fold_text


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a conversation, and the passages that answer it.

    Attributes:
        context: The utterances of the conversation up to the question, which is the last one.
        right: (P,) whether each passage is right: some are, but not all.
        shown: (P,) passages that the conversation has shown before, and that are not right now:
            those of earlier questions, and those that another speaker has said word for word. They
            are not offered again.
        rewrite: The question in words that need no context; the question itself if nobody gave one.
        id: The id of the conversation.
    """

    context: tuple[Utterance, ...]
    right: Mask
    shown: Mask
    rewrite: str
    id: str

    @property
    def is_rewritten(self) -> bool:
        """Whether the rewrite is not the question itself."""
        return self.rewrite != self.context[-1].text


@dataclass(frozen=True, slots=True)
class SearchSet:
    """Questions and the passages among which each is searched for.

    Attributes:
        questions: The questions.
        passages: The texts of P passages.
    """

    questions: tuple[Question, ...]
    passages: tuple[str, ...]


def read_search(conversations: Sequence[str | Path], passages: Mapping[str, str]) -> SearchSet:
    """Read files of conversations whose questions are answered by passages.

    A line is `{"id"?, "utterances": [{"speaker", "text", "passages"?, "rewrite"?}]}`. An utterance
    with `passages`, the ids of the right ones, is a question.

    Args:
        conversations: The files.
        passages: The texts of the passages by their ids.

    Raises:
        DataError: A file cannot be read or holds something else, a question names an unknown
            passage or all of them, or there is no question.
    """
    records = [record for file in conversations for record in read_records(file)]
    questions = [question for record in records for question in _read_questions(record, passages)]
    if not questions:
        raise DataError("no utterance has passages", ", ".join(map(str, conversations)))
    return SearchSet(tuple(questions), tuple(passages.values()))


def evaluate_search(
    encoders: Mapping[str, UtteranceEncoder], data: SearchSet, utterances: int, words: int
) -> Iterator[Row]:
    """Evaluate BM25 and each encoder with each form of the questions.

    Args:
        encoders: The encoders by their names in the table.
        data: The questions and the passages.
        utterances: Newest utterances that the joined form and the running query read.
        words: First words of an utterance of another speaker that these two read.

    Yields:
        A row a system: R@1, mean reciprocal rank and nDCG@10, R@1 by the number of utterances, and
        the median milliseconds of a search. Rewriting is not timed.
    """
    warn_of_truncation({**encoders}, ((text, "the passages") for text in data.passages))
    splits = _make_splits(data, utterances, words)
    for form, split in splits.items():
        if form != "running query":
            yield _measure(f"BM25 · {form}", lexical_systems(split)[1], split, data)
    for label, encoder in encoders.items():
        for form, encoded in _encode_splits(encoder, splits).items():
            system = recommended_system(encoded, encoder.aggregation)
            yield _measure(f"{label} · {form}", system, encoded.split, data)


def _make_splits(data: SearchSet, utterances: int, words: int) -> dict[str, Split]:
    """Return the questions in each form, with the passages as the pool."""
    newest = [_cut(question.context[-utterances:], words) for question in data.questions]
    forms = {
        "last utterance": [context[-1:] for context in newest],
        "joined utterances": [_join(context) for context in newest],
        "running query": newest,
    }
    if any(question.is_rewritten for question in data.questions):
        forms["rewrite"] = [
            (Utterance(question.context[-1].speaker, question.rewrite),)
            for question in data.questions
        ]
    return {form: _make_split(data, contexts) for form, contexts in forms.items()}


def _make_split(data: SearchSet, contexts: Sequence[tuple[Utterance, ...]]) -> Split:
    true = [int(question.right.argmax()) for question in data.questions]
    targets = [
        Context(context, Utterance(next_speaker(context), data.passages[index]), question.id)
        for context, index, question in zip(contexts, true, data.questions, strict=True)
    ]
    return Split(tuple(targets), data.passages, np.array(true))


def _encode_splits(
    encoder: UtteranceEncoder, splits: Mapping[str, Split]
) -> dict[str, EncodedSplit]:
    """Encode splits with the same pool, which is encoded once."""
    pool = next(iter(splits.values())).pool
    contexts = [context for split in splits.values() for context in split.contexts]
    true = np.concatenate([split.true for split in splits.values()])
    whole = encode_split(encoder, Split(tuple(contexts), pool, true))
    encoded: dict[str, EncodedSplit] = {}
    start = 0
    for form, split in splits.items():
        own = slice(start, start + len(split.contexts))
        start = own.stop
        encoded[form] = replace(
            whole,
            split=split,
            first=whole.first[own],
            second=whole.second[own],
            to_mix=whole.to_mix[own],
        )
    return encoded


def _cut(context: Sequence[Utterance], words: int) -> tuple[Utterance, ...]:
    """Return a context in which others than the last speaker say only their first words."""
    asks = context[-1].speaker
    return tuple(
        said if said.speaker == asks else replace(said, text=" ".join(said.text.split()[:words]))
        for said in context
    )


def _join(context: Sequence[Utterance]) -> tuple[Utterance, ...]:
    """Return a context of one utterance, which the last speaker says."""
    return (Utterance(context[-1].speaker, " ".join(said.text for said in context)),)


def _measure(name: str, system: System, split: Split, data: SearchSet) -> Row:
    everything = np.arange(len(data.passages))
    measured: list[Metrics] = []
    for index, question in enumerate(data.questions):
        scores = system.scores(np.array([index]), everything)[0]
        measured.append(search_metrics(np.where(question.shown, -np.inf, scores), question.right))
    metrics = {name: float(np.mean([each[name] for each in measured])) for name in measured[0]}
    first = np.array([each["r@1"] for each in measured])
    lengths = np.array([len(question.context) for question in data.questions])
    for span, those in group_by_length(lengths).items():
        metrics[f"r@1/{span}"] = float(first[those].mean())
    outcomes = Outcomes(first, np.full(len(first), ""), split.dialogues)
    return Row(name, metrics, turn_ms(system, split, len(everything)), outcomes)


def _read_questions(record: Record, passages: Mapping[str, str]) -> Iterator[Question]:
    """Yield the questions of a conversation; passages are texts by their ids."""
    names = list(passages)
    folded = list(map(fold_text, passages.values()))
    said: list[Utterance] = []
    earlier = np.zeros(len(names), np.bool_)
    for item in record.records("utterances"):
        utterance = read_utterance(item)
        said.append(Utterance(utterance.speaker, item.text("text")))
        if "passages" not in item.fields:
            continue
        wanted = item.texts("passages")
        if unknown := [name for name in wanted if name not in passages]:
            raise item.error("passages", f"no passage has the id '{unknown[0]}'")
        right = np.isin(names, wanted)
        if right.all():
            raise item.error("passages", "names all passages, but a question needs wrong ones too")
        context = merge_runs(said)
        heard = [fold_text(each.text) for each in said if each.speaker != utterance.speaker]
        earlier |= np.isin(folded, heard)
        yield Question(
            context=context,
            right=right,
            shown=earlier & ~right,
            rewrite=item.text("rewrite") if "rewrite" in item.fields else context[-1].text,
            id=read_id(record, "id") or record.where,
        )
        earlier |= right
