"""Choices in the service's journal: which of the candidates that were shown people chose.

The files are those of `turnwise journal export`: dialogues in which a reply may name the candidates
that were `shown`, best first, and the one that was `chosen`. People saw only what an earlier model
had found, so the figures favour models that agree with it.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np

from turnwise.models.data import Record, drop_empty, merge_runs, read_records, read_utterance
from turnwise.models.errors import DataError
from turnwise.models.evaluation.metrics import Indices, Scores
from turnwise.models.evaluation.ranking import RankingExample, RankingSet, ranking_set
from turnwise.models.evaluation.systems import System, one_by_one
from turnwise.models.texts import fold_text


def read_choices(paths: Sequence[str | Path], limit: int | None = None) -> RankingSet:
    """Read the choices among at least two texts; the one that was chosen is the right one.

    Raises:
        DataError: A file cannot be read or does not hold such dialogues, or no choice is in them.
    """
    records = chain.from_iterable(map(read_records, paths))
    choices = list(islice(chain.from_iterable(map(_read_choices_of, records)), limit))
    if not choices:
        what = "no reply in it that was chosen among several candidates"
        raise DataError(what, ", ".join(map(str, paths)))
    return ranking_set(choices)


def as_offered(choices: RankingSet) -> System:
    """Return the system that ranks the candidates of a context as they were offered."""

    def scores(context: int, candidates: Indices) -> Scores:
        ranks = {int(index): rank for rank, index in enumerate(choices.candidates[context])}
        return np.array([-ranks.get(int(index), len(ranks)) for index in candidates], np.float64)

    return System("as offered", one_by_one(scores))


def _read_choices_of(record: Record) -> Iterator[tuple[RankingExample, str]]:
    """Yield the choices in a dialogue, each with its file and line."""
    replies = list(record.records("utterances"))
    said = [read_utterance(each) for each in replies]
    for index, reply in enumerate(replies):
        if "chosen" not in reply.fields:
            continue
        shown = tuple(dict.fromkeys(reply.texts("shown")))
        chosen = fold_text(reply.text("chosen"))
        is_chosen = [fold_text(text) == chosen for text in shown]
        if not any(is_chosen):
            raise reply.error("chosen", "is not among those shown")
        context = merge_runs(drop_empty(said[:index]))
        if context and not all(is_chosen):
            where = record.where
            yield (
                RankingExample(
                    context=context,
                    speaker=said[index].speaker,
                    candidates=shown,
                    labels=tuple(map(int, is_chosen)),
                    dialogue_id=where,  # its own may be missing, or another file's too
                ),
                where,
            )
