"""Files of contexts with candidates, of which some are right: R10 and its like."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnwise.models.data import Record, Utterance, read_records, write_jsonl
from turnwise.models.errors import DataError
from turnwise.models.evaluation.histories import next_speaker, read_history
from turnwise.models.evaluation.metrics import Places
from turnwise.models.evaluation.ranking_metrics import Relevant
from turnwise.models.evaluation.split import Context, Split


@dataclass(frozen=True, slots=True)
class RankingProblem:
    """A context and what might be said next.

    Attributes:
        context: The history, oldest first.
        speaker: Who says the candidates.
        candidates: Texts.
        labels: For each candidate 1 if it is right, else 0.
    """

    context: tuple[Utterance, ...]
    speaker: str
    candidates: tuple[str, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankingSet:
    """Problems over one pool of texts.

    Attributes:
        split: Their contexts, each with its first right candidate as the target, and the pool of
            all distinct candidates.
        candidates: For each context the places (C,) of its candidates in the pool.
        relevant: For each context which (C,) of them are right: some, but not all.
        where: For each context its file and line.
        dropped: File and line of the problems left out, as no candidate, or every one, is right.
    """

    split: Split
    candidates: tuple[Places, ...]
    relevant: tuple[Relevant, ...]
    where: tuple[str, ...]
    dropped: tuple[str, ...]

    @property
    def lengths(self) -> NDArray[np.intp]:
        """The number of utterances of each context."""
        return np.array([len(context.history) for context in self.split.contexts])


def read_ranking(paths: Sequence[str | Path], limit: int | None = None) -> RankingSet:
    """Read R10 files as one set, or their first `limit` problems.

    A line is `{"context": [...], "candidates": [...], "labels": [...], "speaker"?}`. An utterance
    of the context is a text or `{"speaker", "text"}`; where speakers are not given, they alternate.
    The candidates are said by `speaker`, or else by who last spoke before the last speaker. As in
    the Douban protocol, a problem of which no candidate, or every one, is right is left out.

    Raises:
        DataError: A file cannot be read or does not hold such problems, or none is left.
    """
    kept: list[tuple[RankingProblem, str]] = []
    dropped: list[Record] = []
    for record in islice(chain.from_iterable(map(read_records, paths)), limit):
        problem = _problem(record)
        if 0 < sum(problem.labels) < len(problem.labels):
            kept.append((problem, record.where))
        else:
            dropped.append(record)
    if not kept:
        if not dropped:
            raise DataError("no problem in it", ", ".join(map(str, paths)))
        what = f"expected right and wrong candidates, which none of {len(dropped)} problems has"
        raise dropped[0].error("labels", what)
    return ranking_set(
        [problem for problem, _ in kept],
        [where for _, where in kept],
        [record.where for record in dropped],
    )


def ranking_set(
    problems: Sequence[RankingProblem], where: Sequence[str], dropped: Sequence[str] = ()
) -> RankingSet:
    """Put problems over one pool; of each some candidates are right and some wrong."""
    texts = dict.fromkeys(text for problem in problems for text in problem.candidates)
    place = {text: place for place, text in enumerate(texts)}
    candidates = tuple(np.array([place[text] for text in p.candidates]) for p in problems)
    relevant = tuple(np.array(problem.labels, np.bool_) for problem in problems)
    true = [int(those[right][0]) for those, right in zip(candidates, relevant, strict=True)]
    pool = tuple(texts)
    contexts = tuple(
        Context(problem.context, Utterance(problem.speaker, pool[target]))
        for problem, target in zip(problems, true, strict=True)
    )
    split = Split(contexts, pool, np.array(true))
    return RankingSet(split, candidates, relevant, tuple(where), tuple(dropped))


def write_ranking(problems: Iterable[RankingProblem], path: str | Path) -> int:
    """Write problems as `read_ranking` reads them, and return how many there were."""
    return write_jsonl(path, map(asdict, problems))


def _problem(record: Record) -> RankingProblem:
    context = read_history(record, "context")
    candidates, labels = record.texts("candidates"), tuple(record.items("labels"))
    if len(labels) != len(candidates):
        what = f"expected as many as candidates, {len(candidates)}, found {len(labels)}"
        raise record.error("labels", what)
    for place, label in enumerate(labels):
        if label not in (0, 1):
            raise record.error(f"labels[{place}]", f"expected 0 or 1, found {json.dumps(label)}")
    named = record.fields.get("speaker")
    speaker = next_speaker(context) if named is None else record.as_text("speaker", named)
    return RankingProblem(context, speaker, candidates, tuple(map(int, labels)))
