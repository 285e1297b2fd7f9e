"""Ranking: order given candidates; one or several of them are right (R10, Douban)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np

from turnwise.models.arrays import Float64
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.evaluation.metrics import Metrics, ranking_metrics, spans
from turnwise.models.evaluation.ranking_examples import RankingSet
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.evaluation.split import Context, Split
from turnwise.models.evaluation.systems import (
    System,
    lexical_systems,
    reading_system,
    reranked,
    retrieval_systems,
    retriever,
    scores_of,
    turn_ms,
)
from turnwise.models.evaluation.truncation import first_places, warn_of_cut, warn_of_truncation
from turnwise.models.rerankers import CrossEncoder, IoI, PairwiseModel

Model = UtteranceEncoder | PairwiseModel | IoI | CrossEncoder
TIMED_CANDIDATES = (10, 1000)


def evaluate_ranking(
    models: Mapping[str, Model],
    data: RankingSet,
    progress: Callable[[str, int, int], object] = lambda *_: None,
    also: Iterable[System] = (),
) -> Iterator[Row]:
    """Evaluate all systems of the models, after random and BM25.

    Args:
        models: By their names in the table. Every IoI network also re-ranks the short list of
            every encoder with pairs.
        data: The examples.
        progress: Called with (system, contexts done, contexts in total) after each context.
        also: Systems to evaluate before those of the models.

    Yields:
        A row a system: the metrics of `ranking_metrics`, P@1 by the length of the context, and the
        median milliseconds of one more turn with 10 candidates and with 1,000. A turn encodes the
        last utterance, as in next-utterance selection, and knows the vectors of the candidates;
        re-rankers read each candidate with the context.
    """
    warn_of_long_inputs(models, data)
    for system in chain(also, systems_of(models, data.split)):
        metrics, first = _metrics(system, data, progress)
        cost = {
            f"ms_{count}_candidates": turn_ms(system, data.split, count)
            for count in TIMED_CANDIDATES
        }
        outcomes = Outcomes(first, np.full(len(first), ""), data.split.dialogues)
        yield Row(system.name, metrics | cost, cost["ms_1000_candidates"], outcomes)


def systems_of(models: Mapping[str, Model], split: Split) -> Iterator[System]:
    """Yield all systems by their names in the table; a model encodes when its turn comes."""
    yield from lexical_systems(split)
    networks = [
        reading_system(name, model.scores, split)
        for name, model in models.items()
        if isinstance(model, IoI)
    ]
    for label, model in models.items():
        if isinstance(model, UtteranceEncoder | PairwiseModel):
            systems = retrieval_systems(model, split)
            if isinstance(model, UtteranceEncoder) and model.kind.paired:
                first = retriever(systems, model.aggregation)
                systems += [reranked(first, network) for network in networks]
            for system in systems:
                yield replace(system, name=f"{label} · {system.name}")
        else:
            kind = "IoI" if isinstance(model, IoI) else "cross-encoder"
            yield reading_system(f"{label} · {kind}", model.scores, split)


def warn_of_long_inputs(models: Mapping[str, Model], data: RankingSet) -> None:
    """Warn of texts that are longer than a model reads."""
    whole = (
        (" ".join(each.texts), f'{where}, field "context"') for each, _, where in _places(data)
    )
    readers = {n: m for n, m in models.items() if not isinstance(m, CrossEncoder)}
    warn_of_truncation(readers, _texts(data), whole)
    for label, model in models.items():
        if isinstance(model, CrossEncoder):
            pairs = first_places(_pairs(model, data))
            warn_of_cut(label, model.too_long(list(pairs)), list(pairs.values()))


def _texts(data: RankingSet) -> Iterator[tuple[str, str]]:
    for context, candidates, where in _places(data):
        yield from ((text, f'{where}, field "context"') for text in context.texts)
        yield from ((text, f'{where}, field "candidates"') for text in candidates)


def _pairs(model: CrossEncoder, data: RankingSet) -> Iterator[tuple[tuple[str, str], str]]:
    for context, candidates, where in _places(data):
        said = context.texts
        yield from ((model.pair(said, text), f'{where}, field "candidates"') for text in candidates)


def _places(data: RankingSet) -> Iterator[tuple[Context, list[str], str]]:
    """Yield each context, its candidates' texts, and where they stand."""
    pool = data.split.pool
    for context, places, where in zip(
        data.split.contexts, data.candidates, data.where, strict=True
    ):
        yield context, [pool[place] for place in places], where


def _metrics(
    system: System, data: RankingSet, progress: Callable[[str, int, int], object]
) -> tuple[Metrics, Float64]:
    """Return the metrics, and P@1 (N,) of each context."""
    by_name: defaultdict[str, list[float]] = defaultdict(list)
    sizes = {len(places) for places in data.candidates}
    n = str(*sizes) if len(sizes) == 1 else "n"
    total = len(data.candidates)
    for place, relevant in enumerate(data.relevant):
        scores = scores_of(system, place, data.candidates[place])
        for metric, value in ranking_metrics(scores, relevant, n).items():
            by_name[metric].append(value)
        progress(system.name, place + 1, total)
    overall = {metric: float(np.mean(values)) for metric, values in by_name.items()}
    first = np.array(by_name["p@1"])
    of_spans = spans(data.split.lengths).items()
    return overall | {f"p@1/{span}": float(first[those].mean()) for span, those in of_spans}, first
