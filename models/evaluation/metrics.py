"""Metrics of scores (ranks, Hits@k, correlations), and the time that scoring takes.

One rule holds for equal scores everywhere: they are in random order, and a metric is its expected
value over that order. A tie of one right and one wrong candidate counts half, and a constant score
is as good as chance. A score that is NaN counts as the lowest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import comb, log2
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata  # type: ignore[import-untyped]

from turnwise.models.arrays import Float64

Scores = NDArray[np.floating[Any]]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Metrics = dict[str, float]

GAINS = 10
"""The k of nDCG@k in `search_metrics`."""
CUTS = (1, 2, 5)
"""The k of R_n@k in `ranking_metrics`."""
BINS = 10
"""Bins of a calibration error, if there are as many answers."""
FEWEST_PAIRS = 3
"""Pairs that a correlation needs: two points always lie on a line."""
TIMED = 20
"""Examples that are timed at most."""
ENOUGH = 10.0
"""Seconds of timing after which no further example is timed."""
SPANS = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, None))
"""Lengths of contexts that share a column in a table."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of n true candidates, 1 being the best.

    Attributes:
        better: (n,) candidates that score above the true one.
        tied: (n,) candidates that score as the true one does, itself included.
    """

    better: Float64
    tied: Float64

    def __getitem__(self, chosen: Mask | Indices) -> "Ranks":
        return Ranks(self.better[chosen], self.tied[chosen])

    @classmethod
    def join(cls, parts: Iterable["Ranks"]) -> "Ranks":
        """Return the ranks of all parts, one part after the other."""
        both = [(part.better, part.tied) for part in parts]
        better, tied = map(np.concatenate, zip(*both, strict=True))
        return cls(better, tied)

    @property
    def expected(self) -> Float64:
        """The expected rank (n,): a constant score ranks everything in the middle."""
        return self.better + (self.tied + 1) / 2

    def within(self, k: int) -> Float64:
        """Return the probability (n,) that the rank is at most k."""
        return _share_within(self.better, self.tied, k)

    def hits(self, at: Iterable[int], name: str = "hits") -> Metrics:
        """Return `NAME@k`, the share of ranks that are at most k, for each k."""
        return {f"{name}@{k}": float(self.within(k).mean()) for k in at}

    @property
    def reciprocal(self) -> Float64:
        """The expected reciprocal rank (n,)."""
        last = (self.better + self.tied).astype(np.intp)
        harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, last.max(initial=0) + 1))])
        share: Float64 = (harmonic[last] - harmonic[self.better.astype(np.intp)]) / self.tied
        return share


def ranks(scores: Scores, true: Indices) -> Ranks:
    """Return the rank of each row's true candidate.

    Args:
        scores: (n, C), higher is better.
        true: (n,) column of the true candidate in each row.
    """
    scores = _replace_nan(scores)
    of_true = np.take_along_axis(scores, true[:, None], axis=1)
    better = np.count_nonzero(scores > of_true, axis=1)
    tied = np.count_nonzero(scores == of_true, axis=1)
    return Ranks(better.astype(np.float64), tied.astype(np.float64))


def ranks_of(rows: Iterable[Scores], true: Iterable[int]) -> Ranks:
    """Return the rank of each row's true candidate; rows (C,) may differ in length."""
    pairs = zip(rows, true, strict=True)
    return Ranks.join(ranks(row[None], np.array([index])) for row, index in pairs)


def retrieval_metrics(of_true: Ranks, candidates: int) -> Metrics:
    """Return mean rank, normalised rank, R@1, R@5, R@10 and mean reciprocal rank.

    The normalised rank is (rank - 1) / (candidates - 1): 0 for the best, 1 for the last and 0.5
    for chance, whatever the number of candidates. rank / candidates would start at a number that
    changes with the length of the context.

    Args:
        of_true: Ranks among the same number of candidates.
        candidates: That number, the true one included.
    """
    rank = of_true.expected
    return {
        "average_rank": float(rank.mean()),
        "normalised_rank": float((rank - 1).mean() / max(candidates - 1, 1)),
        **of_true.hits((1, 5, 10), "r"),
        "mrr": float(of_true.reciprocal.mean()),
    }


@dataclass(frozen=True, slots=True)
class Tie:
    """Candidates of equal score, which have the ranks `before` + 1 to `before` + `size`.

    Attributes:
        before: Candidates with a better score.
        found: How many of those are right.
        size: Candidates with this score.
        right: How many of these are right.
    """

    before: int
    found: int
    size: int
    right: int

    def won_pairs(self, wrong: int) -> float:
        """Return the number of pairs with a wrong candidate that this tie's right ones win.

        Args:
            wrong: Wrong candidates of the whole ranking.
        """
        tied = self.size - self.right
        beaten = wrong - (self.before - self.found) - tied
        return self.right * (beaten + tied / 2)

    def precisions(self) -> float:
        """Return the expected sum of the precisions at the ranks of this tie's right candidates.

        Any rank of the tie has a right candidate with probability right / size; if it does, the
        other right ones are spread evenly over the other ranks.
        """
        others = (self.right - 1) / max(self.size - 1, 1)
        return sum(
            self.right / self.size * (self.found + 1 + j * others) / (self.before + 1 + j)
            for j in range(self.size)
        )

    def gain(self, k: int) -> float:
        """Return the expected discounted gain of this tie's right candidates among the first k."""
        those_before = range(self.before, min(self.before + self.size, k))
        return self.right / self.size * sum(map(_discount, those_before))

    def reciprocal_rank(self) -> float:
        """Return the expected 1 / rank of the first right candidate of this tie."""
        size = self.size
        right = self.right
        return sum(
            comb(size - 1 - j, right - 1) / comb(size, right) / (self.before + 1 + j)
            for j in range(size - right + 1)
        )


def ranking_metrics(scores: Scores, relevant: Mask, name: str | None = None) -> Metrics:
    """Return R_n@1, R_n@2, R_n@5, R_2@1, MAP, MRR and P@1 of one context.

    With several right candidates, as in the Douban corpus, R_n@k is the share of them among the
    first k, and MRR looks at the first of them. R_2@1 is the share of pairs of a right and a wrong
    candidate in which the right one has the better score.

    Args:
        scores: (n,), higher is better.
        relevant: (n,), at least one right and one wrong candidate.
        name: The n of the metrics' names, if not the number of candidates.

    Returns:
        The values of `r_2@1`, `r_10@1`, ..., `map`, `mrr` and `p@1`; no R_n@k with k ≥ n.
    """
    ties = list(_group_ties(_replace_nan(scores), relevant))
    n = len(scores)
    right = int(relevant.sum())
    wrong = n - right

    def found(k: int) -> float:
        return sum(tie.right * float(_share_within(tie.before, tie.size, k)) for tie in ties)

    return {
        "r_2@1": sum(tie.won_pairs(wrong) for tie in ties) / (right * wrong),
        **{f"r_{name or n}@{k}": found(k) / right for k in CUTS if k < n},
        "map": sum(tie.precisions() for tie in ties) / right,
        "mrr": next(tie for tie in ties if tie.right).reciprocal_rank(),
        "p@1": found(1),
    }


def search_metrics(scores: Scores, relevant: Mask) -> Metrics:
    """Return R@1, MRR and nDCG@10 of one question.

    With several right passages R@1 asks whether the first passage is one of them, and MRR looks at
    the best of them. The gain of a passage is 1 if it is right, else 0, discounted by the binary
    logarithm of its rank plus 1 (Järvelin and Kekäläinen, 2002).

    Args:
        scores: (n,), higher is better.
        relevant: (n,), at least one right passage.

    Returns:
        The values of `r@1`, `mrr` and `ndcg@10`.
    """
    ties = list(_group_ties(_replace_nan(scores), relevant))
    ideal = sum(map(_discount, range(min(int(relevant.sum()), GAINS))))
    return {
        "r@1": ties[0].right / ties[0].size,
        "mrr": next(tie for tie in ties if tie.right).reciprocal_rank(),
        f"ndcg@{GAINS}": sum(tie.gain(GAINS) for tie in ties) / ideal,
    }


def average_settings(by_setting: Mapping[str, Metrics]) -> Metrics:
    """Return the mean over settings of each metric, then `METRIC/SETTING` for each setting.

    A setting is a length of the context or a goal distance; each weighs the same, however many
    examples it has, as in the papers' "average rank".
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


def group_by_length(lengths: Indices) -> dict[str, Mask]:
    """Return which of n contexts fall into each span of lengths, of the spans that occur.

    Args:
        lengths: (n,) utterances of each context.

    Returns:
        A mask (n,) for each of `turns=1`, `turns=3-4`, ...
    """
    groups: dict[str, Mask] = {}
    for first, last in SPANS:
        those = (lengths >= first) & (lengths <= (np.inf if last is None else last))
        if those.any():
            groups[_name_span(first, last)] = those
    return groups


def pearson(first: Scores, second: Scores) -> float | None:
    """Return the correlation of (n,) and (n,); None where it is not defined."""
    if len(first) < FEWEST_PAIRS or not np.ptp(first) or not np.ptp(second):
        return None
    return float(np.corrcoef(first, second)[0, 1])


def spearman(first: Scores, second: Scores) -> float | None:
    """Return the correlation of the ranks of (n,) and (n,); equal values share their mean rank."""
    return pearson(rankdata(first), rankdata(second))


def calibration_error(confidence: Float64, right: Mask) -> float:
    """Return the expected calibration error, over `BINS` bins with the same number of answers.

    It is the mean over the answers of the distance between the mean confidence of an answer's bin
    and the share of right ones in it (Guo et al., 2017, eq. 3, whose bins have the same width).

    Args:
        confidence: (n,) probabilities, n ≥ 1.
        right: (n,) whether each answer is right.
    """
    order = np.argsort(confidence)
    parts = np.array_split(order, min(BINS, len(order)))
    shares = _expected_shares(confidence, right)
    apart = [len(part) * abs(confidence[part].mean() - shares[part].mean()) for part in parts]
    return float(sum(apart) / len(order))


def auroc(scores: Scores, right: Mask) -> float | None:
    """Return the probability that a right answer scores above a wrong one; ties count half.

    Args:
        scores: (n,), higher is better.
        right: (n,) whether each answer is right. If all are, or none is, there is no AUROC: None.
    """
    count = int(right.sum())
    wrong = len(right) - count
    if not count or not wrong:
        return None
    of_right = rankdata(_replace_nan(scores))[right]  # 1 is the lowest score
    return float((of_right.sum() - count * (count + 1) / 2) / (count * wrong))


def risks(confidence: Float64, right: Mask) -> Float64:
    """Return the share (n,) of wrong ones among the k most confident answers, k = 1..n.

    Against the coverage k/n this is the risk-coverage curve (El-Yaniv and Wiener, 2010); its mean
    is the area under it.
    """
    order = np.argsort(-confidence)
    wrong = 1 - _expected_shares(confidence, right)[order]
    return np.asarray(np.cumsum(wrong) / np.arange(1, len(wrong) + 1))


def _expected_shares(confidence: Float64, right: Mask) -> Float64:
    """Return the share (n,) of right ones among the answers of the same confidence."""
    _, group = np.unique(confidence, return_inverse=True)
    shares = np.bincount(group, right) / np.bincount(group)
    return np.asarray(shares[group])


def median_ms(work: Callable[[int], object], count: int) -> float:
    """Return the median milliseconds of `work` over `count` examples; an untimed call warms up.

    At most `TIMED` of them are timed, evenly spread, and none after `ENOUGH` seconds.
    """
    work(0)
    seconds: list[float] = []
    for index in np.linspace(0, count - 1, min(count, TIMED)).astype(int).tolist():
        start = perf_counter()
        work(index)
        seconds.append(perf_counter() - start)
        if sum(seconds) > ENOUGH:
            break
    return float(np.median(seconds)) * 1000


def _replace_nan(scores: Scores) -> Scores:
    """Return scores with NaN as the lowest."""
    return np.where(np.isnan(scores), -np.inf, scores)


def _share_within(before: Float64 | int, size: Float64 | int, k: int) -> Float64:
    """Return the share of the ranks `before` + 1 to `before` + `size` that are at most k."""
    return np.asarray(np.clip(k - before, 0, size) / size)


def _group_ties(scores: Scores, relevant: Mask) -> Iterator[Tie]:
    """Yield the groups of equal score, the best first."""
    before = 0
    found = 0
    for score in np.unique(scores)[::-1]:
        equal = scores == score
        size = int(equal.sum())
        right = int(relevant[equal].sum())
        yield Tie(before, found, size, right)
        before += size
        found += right


def _discount(better: int) -> float:
    """Return the discount of the gain of a candidate with so many better ones."""
    return 1 / log2(better + 2)


def _name_span(first: int, last: int | None) -> str:
    if last is None:
        return f"turns={first}+"
    return f"turns={first}" if first == last else f"turns={first}-{last}"
