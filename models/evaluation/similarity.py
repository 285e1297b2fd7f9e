"""Conversational similarity (GiCCS): how well a model's similarity follows people's."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.correlation import FEWEST, pearson, spearman
from turnwise.models.evaluation.in_context import Measure, measures, word_overlap
from turnwise.models.evaluation.metrics import Metrics, median_ms, sample, spans
from turnwise.models.evaluation.report import Row
from turnwise.models.evaluation.similarity_files import Pair, Question, Said
from turnwise.models.rerankers import PairwiseModel

Models = Mapping[str, UtteranceEncoder | PairwiseModel]


def evaluate_similarity(models: Models, pairs: Sequence[Pair]) -> Iterator[Row]:
    """Evaluate all measures that the models give, word overlap first.

    Args:
        models: By their names in the table.
        pairs: At least one. Where none has a context, the measures that would read it are left
            out.

    Yields:
        A row a measure: Pearson's and Spearman's correlation with people's scores, over all pairs,
        by domain and by length of the context; and the median milliseconds to compare one pair.
        What fewer than three pairs, or a constant, leave undefined is left out.
    """
    first, second = [pair.first for pair in pairs], [pair.second for pair in pairs]
    for name, measure in named_measures(models, first):
        similar = measure.similar(first, second)

        def compare(place: int, measure: Measure = measure) -> None:
            measure.similar(first[place : place + 1], second[place : place + 1])

        yield Row(name, _metrics(pairs, similar), median_ms(compare, sample(len(pairs))))


def named_measures(models: Models, said: Sequence[Said]) -> Iterator[tuple[str, Measure]]:
    """Yield word overlap and the models' measures with their names in the table."""
    with_context = any(item.context for item in said)
    yield word_overlap().name, word_overlap()
    for label, model in models.items():
        for measure in measures(model):
            if with_context or not measure.uses_context:
                yield f"{label} · {measure.name}", measure


def placed_texts(items: Iterable[Pair | Question]) -> Iterator[tuple[str, str]]:
    """Yield all texts with the file, line and field where they stand."""
    for item in items:
        yield from ((text, f'{item.where}, field "{field}"') for text, field in _texts(item))


def by_domain_and_length(items: Sequence[Pair | Question]) -> dict[str, NDArray[np.bool_]]:
    """Return which (n,) items belong to each domain and each span of context lengths."""
    domains = np.array([item.domain for item in items])
    said = [item.first if isinstance(item, Pair) else item.last for item in items]
    groups = {f"domain={name}": domains == name for name in sorted(set(domains.tolist())) if name}
    return groups | spans(np.array([len(item.context) for item in said]))


def check_scores(pairs: Sequence[Pair]) -> None:
    """Check that something could correlate with people's scores.

    Raises:
        TurnwiseError: There are too few, or all are the same.
    """
    scores = np.array([pair.score for pair in pairs])
    if pearson(scores, scores) is None:
        raise TurnwiseError(f"a correlation takes {FEWEST} pairs and scores that differ")


def _metrics(pairs: Sequence[Pair], similar: Float32) -> Metrics:
    scores = np.array([pair.score for pair in pairs])
    groups = {"": np.ones(len(pairs), np.bool_), **by_domain_and_length(pairs)}
    measured = {
        f"{metric}/{group}".rstrip("/"): correlate(similar[those].astype(np.float64), scores[those])
        for metric, correlate in (("pearson", pearson), ("spearman", spearman))
        for group, those in groups.items()
    }
    return {name: value for name, value in measured.items() if value is not None}


def _texts(item: Pair | Question) -> Iterator[tuple[str, str]]:
    said = item.first if isinstance(item, Pair) else item.last
    yield from ((utterance.text, "context") for utterance in said.context)
    if isinstance(item, Pair):
        yield from ((item.first.text, "sentence1"), (item.second.text, "sentence2"))
    else:
        yield from chain([(said.text, "context")], ((text, "choices") for text in item.choices))
