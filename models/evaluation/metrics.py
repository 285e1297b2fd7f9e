"""Ranks of the true one among candidates, what is reported of them, and the clock."""

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32, Float64

Scores = Float32
Ranks = Float64
Places = NDArray[np.intp]
Metrics = dict[str, float]

TIMED = 20
ENOUGH = 10.0

SPANS = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, None))
"""Lengths of contexts that stand together in a table."""


def ranks(scores: Scores, true: Places) -> Ranks:
    """Return the rank of each row's true one, 1 being best; ties count half.

    rank = 1 + #better + #equal / 2, so that a constant score ranks everything in the middle. A
    score that is no number ranks last.

    Args:
        scores: (n, C), higher is better.
        true: (n,) column of the true one in each row.

    Returns:
        (n,) float64 between 1 and C.
    """
    of_true = np.take_along_axis(scores, true[:, None], axis=1)
    worse = np.count_nonzero((scores < of_true) | (np.isnan(scores) & ~np.isnan(of_true)), axis=1)
    equal = np.count_nonzero(scores == of_true, axis=1) - 1
    of_true_one: Ranks = scores.shape[1] - worse - np.maximum(equal, 0) / 2
    return of_true_one


def hits(of_true: Ranks, at: Iterable[int], name: str = "hits") -> Metrics:
    """Return `NAME@k`, the share of ranks that are at most k, for each k.

    A rank of k + 1/2, a tie for the last place that counts, is half a hit. Of a tie of two that is
    the expected value over its order, which `ranking_metrics` gives of any tie; of a longer one
    its middle alone counts here.
    """
    return {f"{name}@{k}": float(np.clip(k + 1 - of_true, 0, 1).mean()) for k in at}


def retrieval_metrics(of_true: Ranks, candidates: int) -> Metrics:
    """Return mean rank, normalised rank, R@1, R@5, R@10 and mean reciprocal rank.

    The normalised rank is (rank - 1) / (candidates - 1): 0 for the best, 1 for the last and 0.5
    for chance, whatever the number of candidates. rank / candidates would start at a number that
    changes with the history length. The reciprocal rank, too, is that of the middle of a tie, not
    as in `ranking_metrics` the expected value over its order.

    Args:
        of_true: (n,) ranks among the same number of candidates.
        candidates: That number, the true one included.
    """
    return {
        "average_rank": float(of_true.mean()),
        "normalised_rank": float((of_true - 1).mean() / max(candidates - 1, 1)),
        **hits(of_true, (1, 5, 10), "r"),
        "mrr": float((1 / of_true).mean()),
    }


def average_settings(by_setting: Mapping[str, Metrics]) -> Metrics:
    """Return the mean over settings of each metric, then `METRIC/SETTING` for each setting.

    A setting is a history length or a goal distance; each weighs the same, however many contexts
    it has, as in the papers' "average rank".
    """
    names = dict.fromkeys(name for metrics in by_setting.values() for name in metrics)
    overall = {
        name: float(np.mean([metrics[name] for metrics in by_setting.values()])) for name in names
    }
    single = {
        f"{name}/{setting}": metrics[name]
        for name in names
        for setting, metrics in by_setting.items()
    }
    return overall | single


def spans(lengths: Places) -> dict[str, NDArray[np.bool_]]:
    """Return which of n contexts fall into each span of lengths, of the spans that occur.

    Args:
        lengths: (n,) utterances of each context.

    Returns:
        From `turns=1`, `turns=3-4`, ... to (n,).
    """
    inside = {
        _span(first, last): (lengths >= first)
        & (lengths <= (lengths.max() if last is None else last))
        for first, last in SPANS
    }
    return {name: those for name, those in inside.items() if those.any()}


def sample(count: int, size: int = TIMED) -> list[int]:
    """Return at most `size` places evenly spread over `count`."""
    return [int(place) for place in np.linspace(0, count - 1, min(count, size))]


def median_ms(work: Callable[[int], object], places: Iterable[int]) -> float:
    """Return the median milliseconds of `work` over places; a first, untimed call warms up.

    What takes long is timed at fewer places: once `ENOUGH` seconds are spent, no more follow.
    """
    places = list(places)
    work(places[0])
    seconds: list[float] = []
    for place in places:
        seconds.append(_seconds(work, place))
        if sum(seconds) > ENOUGH:
            break
    return float(np.median(seconds)) * 1000


def _span(first: int, last: int | None) -> str:
    if last is None:
        return f"turns={first}+"
    return f"turns={first}" if first == last else f"turns={first}-{last}"


def _seconds(work: Callable[[int], object], place: int) -> float:
    start = perf_counter()
    work(place)
    return perf_counter() - start
