"""Long-term planning: the order in which to pursue several goals (CCL section 6).

The chain score of an order o of n goals is Σ_t cos(b_{o_t}, a_{o_{t+1}}): how well each goal
follows the one before it (IEC). With a context it also counts where the dialogue leads by itself
(IEC & CU): a goal with a strong pull, P(g), belongs at the start.

CCL's P(g) is the sum of cos(b_i, a_g) over the whole context (`published_pull_query`). In CCL's
Table 4 it helps in contexts of two utterances, and without speaker tokens also of four. With our
models and in contexts of six and ten, that sum outweighs the links, and orders are worse than
without a context (docs/figures.md). So there is another P(g), `pull_query`: half the mean of the
cosines over the last two utterances.

The best order is a longest path, which dynamic programming over subsets finds (Held-Karp). Its time
and memory double with each goal, so there may be at most `MAX_GOALS`.
"""

import heapq
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32, Float64

Real = NDArray[np.floating[Any]]

MAX_GOALS = 16
"""Most goals of a plan. 16 take a tenth of a second and 20 MB; each goal more doubles both."""
PULL_UTTERANCES = 2
"""Newest utterances of a context that pull."""
PULL_SHARE = 0.5
"""Weight of their mean cosine, next to a weight of 1 for the links."""
_DECIMALS = 10
"""Decimals to which equal scores agree, so that rounding does not decide a tie."""


@dataclass(frozen=True, slots=True)
class Order:
    """Indices of the goals in the order to pursue them, and its score."""

    order: tuple[int, ...]
    score: float


class _Prefix(NamedTuple):
    """The first goals of an order. The least one is the most promising, as a heap wants it.

    Attributes:
        negated_bound: The score of the best order that begins so, negated.
        order: Indices of the goals.
        score: Their part of the score.
    """

    negated_bound: float
    order: tuple[int, ...]
    score: float


def position_weights(n: int) -> Float64:
    """Return the weights (n,) of P by position in an order: w_1 = 1, w_p = -(p-1)/(n-1).

    For three goals they give P(first) - ½ P(middle) - P(last) (CCL section 6).
    """
    weights = -np.arange(n) / max(n - 1, 1)
    weights[0] = 1.0
    return weights


def pull_query(second: Float32) -> Float32:
    """Return the vector (d,) whose dot product with a_g is the pull P(g) of a goal.

    Args:
        second: (n, d) b2 of a context of n ≥ 1 utterances, with relations to the speaker of the
            goal. Only the last `PULL_UTTERANCES` are read.
    """
    return np.asarray(PULL_SHARE * second[-PULL_UTTERANCES:].mean(axis=0), np.float32)


def published_pull_query(second: Float32) -> Float32:
    """Return the vector (d,) whose dot product with a_g is CCL's P(g), the sum over the context.

    Args:
        second: (n, d) b2 of the context, as for `pull_query`; all of them are read.
    """
    return np.asarray(second.sum(axis=0), np.float32)


def chain_links(before: Float32, after: Float32) -> Float32:
    """Return the links (n, m) of a chain, cos(b_x, a_y): how well goal y follows goal x.

    Args:
        before: (n, m, d) unit vectors; at [x, y] is goal x as context, b_x, with its relation to
            the speaker of goal y.
        after: (m, d) unit vectors a_y of the goals.
    """
    links: Float32 = np.einsum("xyd,yd->xy", before, after)
    return links


def chain_score(order: tuple[int, ...], links: Real, pull: Real | None = None) -> float:
    """Return Σ_t links[o_t, o_{t+1}], with `pull` also Σ_p w_p pull[o_p] (see `plan_chain`)."""
    goals = list(order)
    score = float(links[goals[:-1], goals[1:]].sum(dtype=np.float64))
    return score if pull is None else score + float(position_weights(len(goals)) @ pull[goals])


def plan_chain(links: Real, pull: Real | None = None, top: int = 1) -> tuple[Order, ...]:
    """Return the `top` best orders of n goals by IEC, or by IEC & CU with `pull` (CCL section 6).

    Args:
        links: (n, n), as `chain_links` returns them. The diagonal is not read.
        pull: (n,), P(g) of each goal; None leaves the context out.
        top: Number of orders to return, n! at most.

    Returns:
        Distinct orders by decreasing score; of equal ones the lexicographically smallest first.

    Raises:
        ValueError: There is no goal or more than `MAX_GOALS`, the arrays do not fit, a number is
            not finite, or `top` is below 1.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, not {top}")
    links = _check_links(links)
    pull = np.zeros(len(links)) if pull is None else _check_pull(pull)
    if len(pull) != len(links):
        raise ValueError(f"pull has {len(pull)} goals, but links has {len(links)}")
    return _best_orders(links, pull, top)


def plan_greedy(pull: Real) -> Order:
    """Return the order of greedy curving (GC, CCL section 6): next goal = argmax P(g).

    Its score is Σ_p w_p P(o_p), the context's part of IEC & CU. As the weights fall from position
    to position, no other order has a higher one.

    Args:
        pull: (n,), P(g) of each goal.

    Raises:
        ValueError: There is no goal, `pull` is not a vector, or a number is not finite.
    """
    pull = _check_pull(pull)
    order = np.argsort(-pull, kind="stable")
    score = float(position_weights(len(pull)) @ pull[order])
    return Order(tuple(order.tolist()), score)


def _check_links(links: Real) -> Float64:
    """Return links as float64 with a diagonal of zeros."""
    if links.ndim != 2 or links.shape[0] != links.shape[1] or len(links) == 0:
        raise ValueError(f"links must be square and hold at least one goal, not {links.shape}")
    if len(links) > MAX_GOALS:
        raise ValueError(f"{len(links)} goals are more than the {MAX_GOALS} of an exact search")
    checked = links.astype(np.float64)
    np.fill_diagonal(checked, 0)
    if not np.isfinite(checked).all():
        raise ValueError("links holds a number that is not finite")
    return checked


def _check_pull(pull: Real) -> Float64:
    if pull.ndim != 1 or len(pull) == 0:
        raise ValueError(f"pull must be a vector over at least one goal, not {pull.shape}")
    if not np.isfinite(pull).all():
        raise ValueError("pull holds a number that is not finite")
    return pull.astype(np.float64)


def _best_orders(links: Float64, pull: Float64, top: int) -> tuple[Order, ...]:
    """Search prefixes best first, by the exact score of their best completion."""
    n = len(links)
    gains = np.outer(position_weights(n), pull)
    completions = _score_completions(links, gains)
    prefixes = [_Prefix(0.0, (), 0.0)]
    found: list[Order] = []
    while prefixes and len(found) < top:
        prefix = heapq.heappop(prefixes)
        if len(prefix.order) == n:
            found.append(Order(prefix.order, -prefix.negated_bound))
            continue
        left = np.setdiff1d(np.arange(n), prefix.order)
        scores = prefix.score + gains[len(prefix.order), left]
        if prefix.order:
            scores += links[prefix.order[-1], left]
        left_bits = 1 << left
        bounds = np.round(scores + completions[left_bits.sum() ^ left_bits, left], _DECIMALS)
        for goal, bound, score in zip(left.tolist(), bounds, scores, strict=True):
            longer = _Prefix(-float(bound), (*prefix.order, goal), float(score))
            heapq.heappush(prefixes, longer)
    return tuple(found)


def _score_completions(links: Float64, gains: Float64) -> Float64:
    """Return V (2^n, n): the most that the goals of set R (as bits) can add after goal x.

    V[R, x] = max_{y in R} links[x, y] + gains[n - |R|, y] + V[R without y, y]; n - |R| is the
    position of y. Entries with x in R are never read.
    """
    n = len(links)
    goals = np.arange(n)
    bits = 1 << goals
    all_sets = np.arange(1 << n)
    sizes = np.bitwise_count(all_sets)
    values = np.zeros((1 << n, n))
    for size in range(1, n):  # larger sets need the values of smaller ones
        sets = all_sets[sizes == size]
        has_goal = (sets[:, None] & bits) != 0  # (sets, n), as the next two
        without_goal = sets[:, None] ^ bits  # read only where the set has the goal
        from_goal = np.where(has_goal, gains[n - size] + values[without_goal, goals], -np.inf)
        best = np.full((len(sets), n), -np.inf)
        for y in range(n):
            np.maximum(best, links[:, y] + from_goal[:, y, None], out=best)
        values[sets] = best
    return values
