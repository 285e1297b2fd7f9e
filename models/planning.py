"""Long-term planning: the order in which to pursue several goals (CCL section 6).

The chain score of an order o of n goals is Σ_t cos(b_{o_t}, a_{o_{t+1}}): how well each goal
follows the one before it (IEC). With a context it also counts where the dialogue leads by itself
(IEC & CU): a goal with a strong pull, P(g), belongs at the start.

P(g) is half the mean of cos(b_i, a_g) over the last two utterances. CCL sums over the whole
context, which has two utterances in its evaluation. In longer contexts that sum outweighs the
links, and orders are worse than without a context (docs/attempts.md).

The best order is a longest path. Up to `EXACT_LIMIT` goals dynamic programming over subsets
(Held-Karp) finds it; beyond that a beam search finds good orders and improves them by exchanging
neighbouring blocks until no exchange gains.
"""

import heapq
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32, Float64

Real = NDArray[np.floating[Any]]

EXACT_LIMIT = 16
"""Goals up to which the search is exact: 2^n n floats (8 MiB at 16) and 2^n n² operations."""
PULL_UTTERANCES = 2
"""Newest utterances of a context that pull."""
PULL_SHARE = 0.5
"""Share of their mean cosine that counts beside the links."""
_BEAM_WIDTH = 1024
"""Orders that the beam keeps. With 48 improved they solve 59 of 60 random problems of 12 and 14
goals, and the last one to 1.4 %; 64 goals take 0.7 s."""
_IMPROVED = 48
"""Orders of the beam that are improved."""
_DECIMALS = 10
"""Decimals to which equal scores agree, so that rounding does not decide a tie."""


@dataclass(frozen=True, slots=True)
class Order:
    """Indices of the goals in the order to pursue them, and its score."""

    order: tuple[int, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Distinct orders by decreasing score; the lexicographically smallest of equal ones first."""

    orders: tuple[Order, ...]
    optimal: bool
    """Whether no other order has a higher score."""


def position_weights(n: int) -> Float64:
    """Return the weights (n,) of P at the places of an order: w_1 = 1, w_p = -(p-1)/(n-1).

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


def plan_chain(links: Real, pull: Real | None = None, top: int = 1) -> Plan:
    """Return the `top` best orders of n goals by IEC, or by IEC & CU with `pull` (CCL section 6).

    Beyond `EXACT_LIMIT` goals they are good ones, and the plan's `optimal` is False.

    Args:
        links: (n, n), as `chain_links` returns them. The diagonal is not read.
        pull: (n,), P(g) of each goal; None leaves the context out.
        top: Number of orders to return, n! at most.

    Raises:
        ValueError: There is no goal, the arrays do not fit, a number is not finite, or `top` is
            below 1.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, not {top}")
    links = _checked_links(links)
    pull = np.zeros(len(links)) if pull is None else _checked_pull(pull)
    if len(pull) != len(links):
        raise ValueError(f"pull is over {len(pull)} goals, links over {len(links)}")
    if len(links) <= EXACT_LIMIT:
        return Plan(_exact_orders(links, pull, top), optimal=True)
    return Plan(_approximate_orders(links, pull, top), optimal=False)


def plan_greedy(pull: Real) -> Plan:
    """Return the order of greedy curving (GC, CCL section 6): next goal = argmax P(g).

    Its score is Σ_p w_p P(o_p), the context's part of IEC & CU. As the weights fall from place to
    place, no other order has a higher one.

    Args:
        pull: (n,), P(g) of each goal.

    Raises:
        ValueError: There is no goal, `pull` is not a vector, or a number is not finite.
    """
    pull = _checked_pull(pull)
    order = np.argsort(-pull, kind="stable")
    score = float(position_weights(len(pull)) @ pull[order])
    return Plan((Order(tuple(order.tolist()), score),), optimal=True)


def _checked_links(links: Real) -> Float64:
    """Return links as float64 with a diagonal of zeros."""
    if links.ndim != 2 or links.shape[0] != links.shape[1] or len(links) == 0:
        raise ValueError(f"links must be square and hold at least one goal, not {links.shape}")
    checked = links.astype(np.float64)
    np.fill_diagonal(checked, 0)
    if not np.isfinite(checked).all():
        raise ValueError("links holds a number that is not finite")
    return checked


def _checked_pull(pull: Real) -> Float64:
    if pull.ndim != 1 or len(pull) == 0:
        raise ValueError(f"pull must be a vector over at least one goal, not {pull.shape}")
    if not np.isfinite(pull).all():
        raise ValueError("pull holds a number that is not finite")
    return pull.astype(np.float64)


def _exact_orders(links: Float64, pull: Float64, top: int) -> tuple[Order, ...]:
    """Search prefixes best first, by the exact score of their best completion."""
    n = len(links)
    gains = np.outer(position_weights(n), pull)
    completions = _completions(links, gains)
    prefixes: list[tuple[float, tuple[int, ...], float]] = [(0.0, (), 0.0)]
    found: list[Order] = []
    while prefixes and len(found) < top:
        bound, prefix, score = heapq.heappop(prefixes)
        if len(prefix) == n:
            found.append(Order(prefix, -bound))
            continue
        left = np.setdiff1d(np.arange(n), prefix)
        scores = score + gains[len(prefix), left] + (links[prefix[-1], left] if prefix else 0)
        bounds = -np.round(scores + completions[(1 << left).sum() ^ (1 << left), left], _DECIMALS)
        for goal, new_bound, new_score in zip(left.tolist(), bounds, scores, strict=True):
            heapq.heappush(prefixes, (float(new_bound), (*prefix, goal), float(new_score)))
    return tuple(found)


def _completions(links: Float64, gains: Float64) -> Float64:
    """Return V (2^n, n): the most that the goals of set R (as bits) can add after goal x.

    V[R, x] = max_{y in R} links[x, y] + gains[n - |R|, y] + V[R without y, y]; n - |R| is the
    place of y. Entries with x in R are never read.
    """
    n = len(links)
    bits, goals, sets = 1 << np.arange(n), np.arange(n), np.arange(1 << n)
    sizes = np.bitwise_count(sets)
    values = np.zeros((1 << n, n))
    for size in range(1, n):
        left = sets[sizes == size, None]
        tails = np.where(left & bits, gains[n - size] + values[left ^ bits, goals], -np.inf)
        best = np.full_like(tails, -np.inf)
        for y in range(n):
            np.maximum(best, links[:, y] + tails[:, y, None], out=best)
        values[left[:, 0]] = best
    return values


def _approximate_orders(links: Float64, pull: Float64, top: int) -> tuple[Order, ...]:
    """Return the best of the beam's orders, the improved ones and the best one's neighbours."""
    beam = _beam(links, np.outer(position_weights(len(links)), pull), max(_BEAM_WIDTH, top))
    cuts = np.array(list(combinations(range(len(links) + 1), 3))).T
    improved = [_improved(order, links, pull, cuts) for order in beam[:_IMPROVED]]
    best = max(improved, key=lambda order: chain_score(tuple(order), links, pull))
    nearest = np.argsort(-_swap_gains(best, links, pull, cuts), kind="stable")[:top]
    neighbours = [_swapped(best, *cuts[:, move]) for move in nearest]
    orders = {tuple(order.tolist()) for order in (*beam, *improved, *neighbours)}
    scored = (Order(o, round(chain_score(o, links, pull), _DECIMALS)) for o in orders)
    return tuple(heapq.nsmallest(top, scored, key=lambda order: (-order.score, order.order)))


def _beam(links: Float64, gains: Float64, width: int) -> NDArray[np.intp]:
    """Return up to `width` orders (width, n), best first, built one goal at a time."""
    n = len(links)
    orders, scores = np.zeros((1, 0), np.intp), np.zeros(1)
    for place in range(n):
        grown = scores[:, None] + gains[place] + (links[orders[:, -1]] if place else 0)
        np.put_along_axis(grown, orders, -np.inf, axis=1)
        kept = np.argsort(-grown, axis=None, kind="stable")[: min(width, len(orders) * (n - place))]
        parents, goals = np.divmod(kept, n)
        orders = np.column_stack([orders[parents], goals])
        scores = grown[parents, goals]
    return orders


def _improved(
    order: NDArray[np.intp], links: Float64, pull: Float64, cuts: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Exchange the two neighbouring blocks that gain most, until no exchange gains (or-opt)."""
    while True:
        gains = _swap_gains(order, links, pull, cuts)
        move = int(gains.argmax())
        if gains[move] < 10**-_DECIMALS:
            return order
        order = _swapped(order, *cuts[:, move])


def _swapped(order: NDArray[np.intp], a: int, b: int, c: int) -> NDArray[np.intp]:
    return np.concatenate([order[:a], order[b:c], order[a:b], order[c:]])


def _swap_gains(
    order: NDArray[np.intp], links: Float64, pull: Float64, cuts: NDArray[np.intp]
) -> Float64:
    """Return the gains (moves,) of exchanging order[a:b] and order[b:c], cuts a < b < c (3, moves).

    Three links change. The weights of `pull` are linear in the place, so a block's part changes by
    its sum times its shift; the weight of the first place, 1 instead of 0, is treated as a link
    from a start before it. With s_x, the sum of `pull` before cut x, the shifts cost
    (c - b)(s_b - s_a) - (b - a)(s_c - s_b). The gain is a sum of parts for the pairs of cuts
    (a, b), (b, c) and (c, a), and each part is known beforehand.
    """
    n = len(order)
    a, b, c = cuts
    joined = np.zeros((n + 1, n + 1))  # from the goal before a cut to the goal after another
    joined[0, :n] = pull[order]
    joined[1:, :n] = links[np.ix_(order, order)]
    sums, places = np.concatenate([[0.0], pull[order].cumsum()]), np.arange(n + 1)
    shifted = np.outer(sums, places) - np.outer(places, sums)
    parts = joined - joined.diagonal()[:, None] - shifted / (n - 1)
    # Most of the time goes here; flat indices are twice as fast as pairs of them.
    part_of = [parts.take(x * (n + 1) + y) for x, y in ((a, b), (b, c), (c, a))]
    gains: Float64 = part_of[0] + part_of[1] + part_of[2]
    return gains
