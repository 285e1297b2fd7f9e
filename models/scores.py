"""How the turns of a context score a candidate: rows, running query, aggregations (C3L, eq. 3, 4).

For a context u_1..u_n and a candidate f, C3L eq. 3 is Σ_{i<j} cos((b1_i + b2_j)/2, a_f). As a_f has
unit length, the sum is a dot product Q · a_f with the running query Q = Σ_j row_j: a session keeps
one row of `d` floats an utterance, whatever the number of candidates. `Aggregation` chooses between
the sum of all rows, the sum of the last rows, and MaxSim.

An encoder with one context role (CCL, a plain one) has no pairs: its b1 is (0, d) everywhere, its
row_j is b_j, and its score is Σ_j cos(b_j, a_f).

Candidates have unit length. The vectors of pairs may have any length, since a pair's cosine uses
the real one. Arrays are float32 in and out. Pairs are formed and summed in float64, so that a score
depends neither on how the context arrived nor on the other candidates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from turnwise.models.arrays import Float32, Float64

_OPPOSITE = 1e-6
"""Norm of b1_i + b2_j below which float32 vectors are opposite and their sum has no direction."""
PAIR_SCORES = 1 << 22
"""Pair scores that MaxSim computes at once; they take some 100 MB."""


def row(first: Float32, second: Float32) -> Float32:
    """Return the row of a new utterance (d,), row_j = Σ_{i<j} (b1_i + b2_j)/‖b1_i + b2_j‖.

    The row of the first utterance (m = 0), which has no pair, is `second`: with it a context of
    one utterance is scored. Opposite vectors have no mean direction, so their pair adds nothing.

    Args:
        first: (m, d) b1 of the utterances before the new one, in any order.
        second: (d,) b2 of the new one.
    """
    if len(first) == 0:
        return second.astype(np.float32)
    before = first.astype(np.float64)
    new = second.astype(np.float64)
    weights = _inverse_norms(before, new[None])[:, 0]
    return np.asarray(weights @ before + weights.sum() * new, dtype=np.float32)


def rows(first: Float32, second: Float32, start: int = 0) -> Float32:
    """Return the rows (k, d) of a context's utterances from `start` on.

    Args:
        first: (m, d) b1 of the context, m ≥ start + k - 1; (0, d) without pairs.
        second: (k, d) b2 of the utterances from `start` on.
        start: Number of utterances before these.
    """
    if len(first) == 0:
        return second.astype(np.float32)
    before = first[: start + len(second) - 1].astype(np.float64)
    new = second.astype(np.float64)
    is_before = np.arange(len(before))[:, None] < start + np.arange(len(new))
    weights = np.where(is_before, _inverse_norms(before, new), 0)
    found = weights.T @ before + weights.sum(axis=0)[:, None] * new
    if start == 0 and len(new):
        found[0] = new[0]  # no pair: a context of one utterance is scored with it
    return np.asarray(found, dtype=np.float32)


def running_query(rows: Float32, last_rows: int | None = None, *, paired: bool = True) -> Float32:
    """Return Q (d,), whose dot product with a candidate is the candidate's score (C3L eq. 3).

    Args:
        rows: (n, d) rows of the context, oldest first.
        last_rows: Number of newest rows to sum ("last l rows" of C3L); None sums all.
        paired: Whether rows are sums over pairs; then the oldest counts only if it is alone.

    Raises:
        ValueError: There are no rows, or `last_rows` is below 1.
    """
    n = len(rows)
    if n == 0:
        raise ValueError("a context needs at least one utterance")
    total = rows[_oldest(n, last_rows, paired) :].sum(axis=0, dtype=np.float64)
    return np.asarray(total, dtype=np.float32)


ROWS_KEPT = 2
"""Newest rows that `KeptRows` keeps, as many as the running query of `last_rows` sums."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The part of a context's rows from which the running query of its next turn follows.

    Attributes:
        count: Number n of the rows.
        total: (d,) sum of all rows; of rows of pairs without the oldest, which counts only if it is
            alone. It is float32: 200 additions move a score by less than a millionth.
        newest: (min(n, ROWS_KEPT), d) newest rows.
        paired: Whether rows are sums over pairs.
    """

    count: int
    total: Float32
    newest: Float32
    paired: bool

    @classmethod
    def none(cls, dimension: int, *, paired: bool) -> "KeptRows":
        """Return the kept rows of an empty context."""
        return cls(0, np.zeros(dimension, np.float32), np.empty((0, dimension), np.float32), paired)

    @property
    def _in_total(self) -> int:
        """Number of rows in `total`."""
        return max(self.count - 1, 0) if self.paired else self.count

    def then(self, new: Float32) -> "KeptRows":
        """Return the kept rows of the context with (k, d) more rows."""
        counted = new[1:] if self.paired and self.count == 0 else new
        total = self.total + counted.sum(axis=0, dtype=np.float64)
        newest = np.concatenate([self.newest, new])[-ROWS_KEPT:]
        return KeptRows(self.count + len(new), total.astype(np.float32), newest, paired=self.paired)

    def without_last(self) -> "KeptRows":
        """Return the kept rows of the context without its last utterance, n ≥ 1.

        One of the newest rows may be missing until `then` adds another.
        """
        total = self.total
        if self._in_total > 0:
            total = total - self.newest[-1]
        return KeptRows(self.count - 1, total, self.newest[:-1], paired=self.paired)

    def query(self, last_rows: int | None) -> Float32 | None:
        """Return `running_query` of the n ≥ 1 rows; None if it needs more rows than are kept."""
        if last_rows is None and self.count > 1:
            return self.total
        summed = 1  # the only row of a context counts, even if it is not in the total
        if last_rows is not None and self.count > 1:
            summed = min(last_rows, self._in_total)
        if summed > len(self.newest):
            return None
        return np.asarray(self.newest[-summed:].sum(axis=0, dtype=np.float64), dtype=np.float32)


def score_matrix(
    rows: Float32, candidates: Float32, last_rows: int | None, *, paired: bool
) -> Float32:
    """Return the score matrix (n, C): the score of every candidate after every utterance.

    Args:
        rows: (n, d) rows of the context, n ≥ 1.
        candidates: (C, d).
        last_rows: As in `running_query`.
        paired: As in `running_query`.

    Raises:
        ValueError: As in `running_query`.
    """
    turns = range(1, len(rows) + 1)
    queries = [running_query(rows[:t], last_rows, paired=paired) for t in turns]
    return np.stack(queries) @ candidates.T


def contributions(
    first: Float32, second: Float32, candidates: Float32, last_rows: int | None = None
) -> Float32:
    """Return each utterance's part (n, C) in the score of each candidate; a column sums to it.

    A pair's cosine splits into b1_i · a / ‖b1_i + b2_j‖, the part of utterance i, and
    b2_j · a / ‖b1_i + b2_j‖, the part of utterance j.

    Args:
        first: (n, d) b1 of the context, or (0, d), n ≥ 1.
        second: (n, d) b2 of the context.
        candidates: (C, d).
        last_rows: As in `running_query`.

    Raises:
        ValueError: `last_rows` is below 1.
    """
    b1, b2, a = (x.astype(np.float64) for x in (first, second, candidates))
    oldest = _oldest(len(b2), last_rows, len(b1) > 0)
    if not _has_pairs(first, second):
        b2[:oldest] = 0
        return np.asarray(b2 @ a.T, dtype=np.float32)
    weights = np.triu(_inverse_norms(b1, b2), 1)
    weights[:, :oldest] = 0
    as_first = weights.sum(axis=1)[:, None] * (b1 @ a.T)
    as_second = weights.sum(axis=0)[:, None] * (b2 @ a.T)
    return np.asarray(as_first + as_second, dtype=np.float32)


def max_sim(first: Float32, second: Float32, candidates: Float32) -> Float32:
    """Return the MaxSim score (C,) of each candidate (C3L appendix A, algorithm 1).

    The algorithm takes the pairs in decreasing order of score and counts a pair if one of its
    utterances is in no counted pair yet; the score is the mean of the counted pairs. So the counted
    pairs are the best pair of each utterance, once if two utterances choose each other, and
    nothing needs sorting. Of equal pairs (i, j), i < j, the smaller j comes first, then the
    smaller i.

    Args:
        first: (n, d) b1 of the context, or (0, d), n ≥ 1.
        second: (n, d) b2 of the context. Without pairs the score is the mean of the b2_j · a.
        candidates: (C, d), taken in blocks, so that memory is bounded whatever C is.
    """
    if not _has_pairs(first, second):
        mean = second.mean(axis=0, dtype=np.float64)
        return np.asarray(candidates @ mean, dtype=np.float32)
    parts: list[Float64] = [np.empty((1, 0))]
    for block in _split_blocks(len(second), candidates):
        best, _, weights = _best_pairs(first, second, block)
        parts.append((weights * best).sum(axis=0, keepdims=True))
    return np.asarray(np.concatenate(parts, axis=1)[0], dtype=np.float32)


def max_sim_matrix(first: Float32, second: Float32, candidates: Float32) -> Float32:
    """Return the MaxSim score (n, C) of every candidate after every utterance.

    A new utterance can only better the best pair of an earlier one, so that all n lines take as
    many pair scores as the last one alone. Arguments as in `max_sim`, n ≥ 1.
    """
    if not _has_pairs(first, second):
        sums = np.cumsum(second.astype(np.float64) @ candidates.T, axis=0)
        return np.asarray(sums / np.arange(1, len(second) + 1)[:, None], dtype=np.float32)
    blocks: list[Float64] = [np.empty((len(second), 0))]
    for block in _split_blocks(len(second), candidates):
        scores = _pair_scores(first, second, block)
        best = np.full(scores.shape[1:], -np.inf)
        partner = np.zeros(scores.shape[1:], np.intp)
        lines = np.empty(scores.shape[1:])
        lines[0] = second[0] @ block.T
        for new in range(1, len(second)):
            better = scores[:new, new] > best[:new]
            best[:new] = np.where(better, scores[:new, new], best[:new])
            partner[:new] = np.where(better, new, partner[:new])
            best[new] = scores[new, :new].max(axis=0)
            partner[new] = scores[new, :new].argmax(axis=0)
            weights = _pair_weights(partner[: new + 1])
            lines[new] = (weights * best[: new + 1]).sum(axis=0)
        blocks.append(lines)
    return np.asarray(np.concatenate(blocks, axis=1), dtype=np.float32)


def max_sim_contributions(first: Float32, second: Float32, candidates: Float32) -> Float32:
    """Return each utterance's part (n, C) in the MaxSim score; a column sums to its score.

    A pair splits between its utterances as in `contributions`. Arguments as in `max_sim`.
    """
    b1 = first.astype(np.float64)
    b2 = second.astype(np.float64)
    if not _has_pairs(first, second):
        return np.asarray(b2 @ candidates.T / len(b2), dtype=np.float32)
    norms = _inverse_norms(b1, b2)
    parts: list[Float64] = [np.empty((len(b2), 0))]
    for block in _split_blocks(len(b2), candidates):
        _, partner, weights = _best_pairs(first, second, block)
        utterance, column = np.indices(partner.shape)
        earlier = np.minimum(utterance, partner)
        later = np.maximum(utterance, partner)
        scaled = weights * norms[earlier, later]
        part: Float64 = np.zeros(partner.shape)
        np.add.at(part, (earlier, column), scaled * (b1 @ block.T)[earlier, column])
        np.add.at(part, (later, column), scaled * (b2 @ block.T)[later, column])
        parts.append(part)
    return np.asarray(np.concatenate(parts, axis=1), dtype=np.float32)


def reachability(first: Float32, candidates_second: Float32, goals: Float32) -> Float32:
    """Return the reachability (C, G) of each goal by each candidate, if said next (C3L eq. 4).

    It is cos(b2_c, a_g) + (1/n) Σ_i cos((b1_i + b2_c)/2, a_g); without a context (n = 0) and for
    CCL it is the first term. Each number depends on its own candidate and goal alone.

    Args:
        first: (n, d) b1 of the context, with relations to the speaker of the goals.
        candidates_second: (C, d) b2 of the candidates, with relations to the same speaker.
        goals: (G, d). Memory is C (n + d + G) floats, with no tensor over (n, C, d).
    """
    b1, b2, a = (x.astype(np.float64) for x in (first, candidates_second, goals))
    products = b2 @ a.T
    alone = products / np.linalg.norm(b2, axis=1, keepdims=True)
    if len(b1) == 0:
        return np.asarray(alone, dtype=np.float32)
    weights = _inverse_norms(b1, b2).T
    paired = weights @ (b1 @ a.T) + weights.sum(axis=1)[:, None] * products
    return np.asarray(alone + paired / len(b1), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """How a context's pairs become a score: `mean`, `last_rows` (C3L eq. 3) or `max_sim`.

    Methods take a context of n ≥ 1 utterances as `first`, its b1 (n, d) or (0, d) without pairs,
    and `second`, its b2 (n, d), both float32.

    Attributes:
        name: `mean` sums all rows, `last_rows` the newest; `max_sim` is C3L appendix A.
        last_rows: Rows that `last_rows` sums.
    """

    name: Literal["mean", "last_rows", "max_sim"] = "mean"
    last_rows: Annotated[int, Field(ge=1)] = 2

    @property
    def summed(self) -> int | None:
        """The number of newest rows that the running query sums; None for all."""
        return self.last_rows if self.name == "last_rows" else None

    def query(self, first: Float32, second: Float32) -> Float32:
        """Return the running query (d,). For MaxSim it is the one of `mean`."""
        # One row more than are summed, since the oldest row counts only if it is alone.
        start = 0 if self.summed is None else max(0, len(second) - self.summed - 1)
        newest = rows(first, second[start:], start)
        return running_query(newest, self.summed, paired=len(first) > 0)

    def scores(self, first: Float32, second: Float32, candidates: Float32) -> Float32:
        """Return the next-utterance scores (C,) of candidates (C, d); higher is better."""
        if self.name == "max_sim":
            return max_sim(first, second, candidates)
        return np.asarray(candidates @ self.query(first, second))

    def matrix(self, first: Float32, second: Float32, candidates: Float32) -> Float32:
        """Return the score matrix (n, C): the scores after every utterance."""
        if self.name == "max_sim":
            return max_sim_matrix(first, second, candidates)
        whole = rows(first, second)
        return score_matrix(whole, candidates, self.summed, paired=len(first) > 0)

    def contributions(self, first: Float32, second: Float32, candidates: Float32) -> Float32:
        """Return each utterance's part (n, C) in the scores; a column sums to its score."""
        if self.name == "max_sim":
            return max_sim_contributions(first, second, candidates)
        return contributions(first, second, candidates, self.summed)


def _oldest(n: int, last_rows: int | None, paired: bool) -> int:
    """Return the index of the oldest row that counts; row 0 of pairs counts only if alone."""
    if last_rows is not None and last_rows < 1:
        raise ValueError(f"last_rows must be at least 1, not {last_rows}")
    oldest = 1 if paired and n > 1 else 0
    return oldest if last_rows is None else max(oldest, n - last_rows)


def _has_pairs(first: Float32, second: Float32) -> bool:
    return len(first) > 0 and len(second) > 1


def _inverse_norms(first: Float64, second: Float64) -> Float64:
    """Return 1/‖first_i + second_j‖ (m, k) from the Gram matrix; 0 for an opposite pair.

    It uses the real lengths: 2 + 2 x·y assumes 1, and near-opposite pairs magnify the error.
    """
    squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1) + 2 * first @ second.T
    norms: Float64 = np.sqrt(np.maximum(squares, 0))
    inverse: Float64 = np.divide(1, norms, out=np.zeros_like(norms), where=norms > _OPPOSITE)
    return inverse


def _split_blocks(n: int, candidates: Float32) -> Iterator[Float32]:
    """Yield candidates in blocks whose pair scores fit a bounded memory."""
    size = max(1, PAIR_SCORES // n**2)
    for begin in range(0, len(candidates), size):
        yield candidates[begin : begin + size]


def _best_pairs(
    first: Float32, second: Float32, candidates: Float32
) -> tuple[Float32, NDArray[np.intp], Float64]:
    """Return the score, the partner and the weight (n, C each) of each utterance's best pair.

    Weights sum to 1 over the utterances. A pair that both of its utterances chose has one pair's
    weight, half for each.
    """
    scores = _pair_scores(first, second, candidates)
    partner = scores.argmax(axis=1)
    return scores.max(axis=1), partner, _pair_weights(partner)


def _pair_weights(partner: NDArray[np.intp]) -> Float64:
    """Return the weight (n, C) of each utterance's best pair, from the other utterance in it."""
    mutual = np.take_along_axis(partner, partner, axis=0) == np.arange(len(partner))[:, None]
    weights = np.where(mutual, 0.5, 1.0)
    shares: Float64 = weights / weights.sum(axis=0)
    return shares


def _pair_scores(first: Float32, second: Float32, candidates: Float32) -> Float32:
    """Return cos((b1_i + b2_j)/2, a) as (n, n, C), mirrored below the diagonal, -inf on it."""
    b1, b2, a = (x.astype(np.float64) for x in (first, second, candidates))
    weights = _inverse_norms(b1, b2)[:, :, None]
    scores = (weights * ((b1 @ a.T)[:, None] + (b2 @ a.T)[None])).astype(np.float32)
    scores[np.tril_indices(len(b1))] = -np.inf
    return np.maximum(scores, scores.transpose(1, 0, 2))
