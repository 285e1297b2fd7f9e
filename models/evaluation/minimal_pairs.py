"""Minimal pairs: two contexts that differ in one thing, such as yes and no, and two replies.

A pair is right if each context gets its own reply. Chance is a quarter.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from turnwise.models.data import (
    Record,
    Utterance,
    drop_empty,
    merge_runs,
    read_label,
    read_records,
    read_utterance,
)
from turnwise.models.errors import DataError
from turnwise.models.evaluation.ranking import (
    Model,
    RankingExample,
    ranking_set,
    systems_of,
    warn_of_long_inputs,
)
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.evaluation.split import next_speaker
from turnwise.models.evaluation.systems import scores_of, turn_ms

T = TypeVar("T")

USER = "user"
"""The speaker of the answers in a file."""


@dataclass(frozen=True, slots=True)
class MinimalPair:
    """Two contexts that differ in one thing, and the reply that is right after each.

    Attributes:
        kind: The thing, such as `yes_no`.
        contexts: Two contexts of at least one utterance each.
        replies: The right reply to each context, which is wrong after the other one.
        where: The file and the line.
    """

    kind: str
    contexts: tuple[tuple[Utterance, ...], tuple[Utterance, ...]]
    replies: tuple[str, str]
    where: str = ""

    @property
    def examples(self) -> list[RankingExample]:
        """The two contexts, each with both replies as its candidates."""
        return [
            RankingExample(context, next_speaker(context), self.replies, labels)
            for context, labels in zip(self.contexts, ((1, 0), (0, 1)), strict=True)
        ]


def read_minimal_pairs(paths: Sequence[str | Path], limit: int | None = None) -> list[MinimalPair]:
    """Read files of minimal pairs as one list, or their first `limit` pairs.

    A line is `{"kind", "context" or "contexts", "answers", "replies"}`. `context` is what both
    contexts begin with, which may be nothing; `contexts` are two beginnings. The two `answers` of
    the user end the contexts, and the two `replies` are right after them.

    Raises:
        DataError: A file cannot be read or does not hold such pairs, or there is none.
    """
    pairs = [_read_pair(record) for path in paths for record in read_records(path)][:limit]
    if not pairs:
        raise DataError("no pair in it", ", ".join(map(str, paths)))
    return pairs


def evaluate_minimal_pairs(
    models: Mapping[str, Model],
    pairs: Sequence[MinimalPair],
    progress: Callable[[str, int, int], object] = lambda *_: None,
) -> Iterator[Row]:
    """Evaluate all systems of the models, after random and BM25.

    Args:
        models: The models by their names in the table.
        pairs: The pairs.
        progress: Called with (system, contexts done, contexts in total) after each context.

    Yields:
        A row for each system: the share of the pairs with `both` replies right, of each kind as
        well, and the share of the `single` contexts whose reply is right. A tie is wrong.
    """
    examples = [(example, pair.where) for pair in pairs for example in pair.examples]
    data = ranking_set(examples)
    kinds = np.array([pair.kind for pair in pairs])
    warn_of_long_inputs(models, data)
    for system in systems_of(models, data.split):
        right = np.empty(len(examples), np.bool_)
        for index, (candidates, relevant) in enumerate(
            zip(data.candidates, data.relevant, strict=True)
        ):
            scores = scores_of(system, index, candidates)
            right[index] = scores[relevant] > scores[~relevant]
            progress(system.name, index + 1, len(examples))
        both = right[::2] & right[1::2]
        metrics = {"both": float(both.mean()), "single": float(right.mean())}
        metrics |= {f"both/{kind}": float(both[kinds == kind].mean()) for kind in np.unique(kinds)}
        outcomes = Outcomes(both.astype(np.float64), np.full(len(both), ""), np.arange(len(both)))
        yield Row(system.name, metrics, turn_ms(system, data.split, 2), outcomes)


def _read_pair(record: Record) -> MinimalPair:
    beginnings = _read_beginnings(record)
    answers = _check_two(record, "answers", record.texts("answers"))
    first, second = (
        merge_runs([*beginning, Utterance(USER, answer)])
        for beginning, answer in zip(beginnings, answers, strict=True)
    )
    replies = _check_two(record, "replies", record.texts("replies"))
    if replies[0] == replies[1]:
        raise record.error("replies", "must differ")
    return MinimalPair(read_label(record, "kind"), (first, second), replies, record.where)


def _read_beginnings(record: Record) -> list[list[Utterance]]:
    """Return what comes before the answer in each of the two contexts."""
    if "contexts" not in record.fields:
        return [_read_utterances(record, "context")] * 2
    lists = _check_two(record, "contexts", record.items("contexts"))
    # Each list becomes the only field of a record, so that errors name `contexts[0][1].text`.
    records = [
        replace(record, fields={"": utterances}, path=f"contexts[{index}]")
        for index, utterances in enumerate(lists)
    ]
    return [_read_utterances(each, "") for each in records]


def _check_two(record: Record, field: str, items: Sequence[T]) -> tuple[T, T]:
    """Return the items of a field as a pair, or raise DataError."""
    if len(items) != 2:
        raise record.error(field, f"expected two, found {len(items)}")
    return items[0], items[1]


def _read_utterances(record: Record, field: str) -> list[Utterance]:
    return list(drop_empty(map(read_utterance, record.records(field))))
