"""The objectives, over vectors that were encoded once.

All of them take the vectors of a step, laid out by view and turn as in `views.Batch`:
`first`, `second` and `after` are (V, T, d) unit vectors; `spoken` and `target` are (V, T). A step
may hold several views of a dialogue: a rival from another dialogue is never one of these.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from turnwise.models.training.views import Batch

MIXTURE_EPSILON = 1e-6
NO_RIVAL = -1e4
"""A logit that no softmax sees, finite so that gradients stay finite where there is no rival."""
ORDER_SCALE = 10.0
"""Inverse temperature of the order of utterances: a margin of 0.1 makes it e times as likely."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of a step.

    Attributes:
        first: (V, T, d) float32, [B1].
        second: (V, T, d) float32, [B2]; for CCL the only context role.
        after: (V, T, d) float32, [AFTER]; meaningful where `target`.
        after_text: (V, T) int64, equal where two targets are the same text.
        spoken: (V, T) bool.
        target: (V, T) bool.
        dialogue: (V,) int64, equal where two views are of the same dialogue.
    """

    first: Tensor
    second: Tensor
    after: Tensor
    after_text: Tensor
    spoken: Tensor
    target: Tensor
    dialogue: Tensor

    @classmethod
    def of(cls, encoded: Tensor, batch: Batch) -> Self:
        """Lay out (U, d) vectors of a batch's distinct texts by view and turn."""
        parts = (batch.first, batch.second, batch.after, batch.spoken, batch.target, batch.dialogue)
        first, second, after, *rest = (torch.from_numpy(part).to(encoded.device) for part in parts)
        return cls(encoded[first], encoded[second], encoded[after], after, *rest)


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples of a curved objective, as places in the flattened (V * T) turns.

    Attributes:
        first: (N,) int64 places of b1; for pairs equal to `second`.
        second: (N,) int64 places of b2.
        after: (N,) int64 places of a.
        score: (N,) float32 targets of the cosine.
    """

    first: Tensor
    second: Tensor
    after: Tensor
    score: Tensor

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, float]]) -> Self:
        """Make examples of (first, second, after, score)."""
        places = torch.tensor([row[:3] for row in rows], dtype=torch.int64).reshape(-1, 3)
        first, second, after = places.unbind(1)
        return cls(
            first, second, after, torch.tensor([row[3] for row in rows], dtype=torch.float32)
        )


def pair_score(distance: int, window: int) -> float:
    """Return CCL's target cosine (CCL eq. 1): (l - i) / l at distance i in a window of l."""
    return (window - distance) / window


def triple_score(first_distance: int, second_distance: int, window: int) -> float:
    """Return C3L's target cosine: the sum of two CCL targets, min-max scaled.

    The sum 2 - (2k - (i + j)) / w runs from 3/w (the two oldest utterances of a window of w,
    its last one being the target) to 2 - 3/w (the two newest); it is scaled to [1/w, 1]. A
    window of 3 holds one pair, whose target is 1.
    """
    low, high = 3 / window, 2 - 3 / window
    if high <= low:
        return 1.0
    total = pair_score(first_distance, window) + pair_score(second_distance, window)
    return (total - low) / (high - low) * (1 - 1 / window) + 1 / window


def pair_examples(
    batch: Batch, window: int, rng: np.random.Generator, *, directional: bool, curved: bool
) -> Examples:
    """Form CCL's examples (CCL eq. 1, eq. 5): a cosine for each distance within a window.

    For each target and each utterance less than `window` turns before it: the pair with its
    curved score; a random negative, in which another dialogue's utterance takes the place of
    one of the two; and, each with score 0, the pairs of the target with the turns that follow it.

    Args:
        batch: The step's views.
        window: Utterances of a window, the target included.
        rng: Draws the random negatives.
        directional: Whether the turns after a target count as negatives.
        curved: Whether scores fall with distance; otherwise positives score 1 (ablation).
    """
    rows: list[tuple[int, int, int, float]] = []
    width = batch.spoken.shape[1]
    draw = _Draw(batch, rng)
    for v, k in np.argwhere(batch.target):
        after = v * width + k
        for i in range(max(0, k - window + 1), k):
            before = v * width + i
            score = pair_score(k - i, window) if curved else 1.0
            rows.append((before, before, after, score))
            if draw.alone:
                continue
            if rng.random() < 0.5:
                rows.append((before, before, draw.target(v), 0.0))
            else:
                other = draw.utterance(v)
                rows.append((other, other, after, 0.0))
        if directional:
            later = range(k + 1, min(k + window, int(batch.spoken[v].sum())))
            rows.extend((v * width + p, v * width + p, after, 0.0) for p in later)
    return Examples.of(rows)


def triple_examples(
    batch: Batch, window: int, rng: np.random.Generator, *, directional: bool, curved: bool
) -> Examples:
    """Form C3L's examples: mixtures of two context utterances against the target.

    For each target: every pair i < j less than `window` turns before it, with its curved score;
    and for each of these context utterances three negatives, with one or two utterances of
    other dialogues as [B2], as [B1], as both (C3L's hard negatives, target 0).

    Args:
        batch: The step's views.
        window: Utterances of a window, the target included.
        rng: Draws the random utterances.
        directional: Whether a pair in the wrong order counts as a negative (ablation).
        curved: Whether scores fall with distance; otherwise positives score 1 (ablation).
    """
    rows: list[tuple[int, int, int, float]] = []
    width = batch.spoken.shape[1]
    draw = _Draw(batch, rng)
    for v, k in np.argwhere(batch.target):
        after, start = v * width + k, v * width
        context = range(max(0, k - window + 1), k)
        for i, j in combinations(context, 2):
            score = triple_score(k - i, k - j, window) if curved else 1.0
            rows.append((start + i, start + j, after, score))
            if directional:
                rows.append((start + j, start + i, after, 0.0))
        for i in () if draw.alone else context:
            rows.append((start + i, draw.utterance(v), after, 0.0))
            rows.append((draw.utterance(v), start + i, after, 0.0))
            rows.append((draw.utterance(v), draw.utterance(v), after, 0.0))
    return Examples.of(rows)


def curved_loss(vectors: Vectors, examples: Examples) -> Tensor:
    """Return the mean squared error of the cosines against their targets; 0 without examples.

    With pairs it is CCL's objective (a mixture of a vector with itself is the vector), with
    triples C3L's: cos((b1_i + b2_j) / 2, a_k).
    """
    first, second, after = (x.flatten(0, 1) for x in (vectors.first, vectors.second, vectors.after))
    device = after.device
    score = examples.score.to(device)
    if torch.equal(examples.first, examples.second):
        mixture = second[examples.second.to(device)]
    else:
        mixed = first[examples.first.to(device)] + second[examples.second.to(device)]
        mixture = functional.normalize(mixed, dim=-1, eps=MIXTURE_EPSILON)
    cosine = (mixture * after[examples.after.to(device)]).sum(-1)
    return functional.mse_loss(cosine, score, reduction="sum") / max(len(score), 1)


def queries(vectors: Vectors, last_rows: int | None, *, triple: bool) -> Tensor:
    """Return the unit running query before each turn (C3L eq. 3, folded up).

    Args:
        vectors: The step's vectors.
        last_rows: Rows that count; None for all.
        triple: Whether rows are mixtures of pairs; otherwise CCL's plain sum.

    Returns:
        (V, T, d): at turn t the query of the context u_1..u_(t-1); zero at the first turn.
    """
    if triple:
        pairs = vectors.first[:, :, None] + vectors.second[:, None]
        mixtures = functional.normalize(pairs, dim=-1, eps=MIXTURE_EPSILON)
        turns = mixtures.shape[1]
        earlier = torch.ones(turns, turns, device=mixtures.device).triu(1)
        rows = torch.einsum("vijd,ij->vjd", mixtures, earlier)
    else:
        rows = vectors.second
    total = rows.cumsum(1)
    if last_rows is not None:
        total = total - functional.pad(total, (0, 0, last_rows, 0))[:, : total.shape[1]]
    if triple:  # a context of one utterance has no pair: its query is its own vector
        total = torch.cat([vectors.second[:, :1], total[:, 1:]], dim=1)
    shifted = functional.pad(total, (0, 0, 1, 0))[:, :-1]
    return functional.normalize(shifted, dim=-1, eps=MIXTURE_EPSILON)


def running_query_loss(
    vectors: Vectors, queries: Tensor, scale: Tensor, *, same_dialogue: bool
) -> Tensor:
    """Return the contrastive loss of the running query against all targets of the step.

    InfoNCE in both directions: each query must find its next utterance among the targets of
    the batch, each target its query. It optimises the sum that is used at inference, which
    the curved objectives only do pair by pair. Targets with the same text as the right one
    are left out.

    Args:
        vectors: The step's vectors.
        queries: (V, T, d) unit running queries.
        scale: Inverse temperature, a scalar.
        same_dialogue: Whether the targets at other turns of a dialogue are (hard) negatives.
    """
    asked = vectors.target.clone()
    asked[:, 0] = False
    logits = scale * queries[asked] @ vectors.after[asked].T
    text = vectors.after_text[asked]
    dialogue = vectors.dialogue[asked.nonzero()[:, 0]]
    excluded = text[:, None] == text[None, :]
    if not same_dialogue:
        excluded |= dialogue[:, None] == dialogue[None, :]
    return contrastive_loss(logits, excluded)


def contrastive_loss(logits: Tensor, excluded: Tensor) -> Tensor:
    """Return InfoNCE in both directions: row and column i belong together.

    Args:
        logits: (n, n).
        excluded: (n, n) bool, what is no rival, such as another copy of the right text; the
            diagonal is always kept.
    """
    rivals = excluded.clone().fill_diagonal_(fill_value=False)
    logits = logits.masked_fill(rivals, -torch.inf)
    right = torch.arange(len(logits), device=logits.device)
    forth = functional.cross_entropy(logits, right)
    back = functional.cross_entropy(logits.T, right)
    return (forth + back) / 2


def reach_loss(vectors: Vectors, scale: Tensor, window: int) -> Tensor:
    """Return the contrastive loss of single utterances against the targets ahead of them.

    The counterpart of CCL for planning, as a ranking: an utterance must find the target that
    its own dialogue reaches i turns later (i < window), and that target the utterance. It is
    asked twice: among the turns of other dialogues, and among those of its own that stand in
    the wrong order or further apart. Together these rivals would drown the few of its own,
    from which the order of goals is learned. What lies nearer is no rival, so that closeness
    falls with distance and stays above that of other dialogues; nor is a target with the same
    text. A positive at distance i weighs CCL's (l - i) / l.

    Args:
        vectors: The step's vectors.
        scale: Inverse temperature, a scalar.
        window: Utterances of a window, the target included.
    """
    v, t = vectors.spoken.nonzero().unbind(1)
    w, k = vectors.target.nonzero().unbind(1)
    logits = scale * vectors.second[v, t] @ vectors.after[w, k].T
    distance = k[None, :] - t[:, None]
    same = v[:, None] == w[None, :]
    other = vectors.dialogue[v][:, None] != vectors.dialogue[w][None, :]
    text = vectors.after_text[w, k]
    total, weights = logits.new_zeros(()), 0.0
    for i in range(1, window):
        positive = same & (distance == i)
        if not positive.any():
            continue
        further = same & ((distance <= 0) | (distance > i))
        reached = torch.where(positive.any(1), text[positive.int().argmax(1)], -1)
        twin = reached[:, None] == text[None, :]
        for rivals in (other, further):
            rivalling = logits.masked_fill(~rivals | twin, NO_RIVAL)
            for dim in (0, 1):
                surprise = functional.softplus(rivalling.logsumexp(dim, keepdim=True) - logits)
                total = total + pair_score(i, window) * surprise[positive].mean()
        weights += 4 * pair_score(i, window)
    return total / max(weights, 1.0)


def order_loss(vectors: Vectors, window: int) -> Tensor:
    """Return the logistic loss of the order of two utterances of the responder; 0 without any.

    What a chain of goals asks for (CCL section 6), link by link: of two utterances less than
    `window` turns apart the earlier one must lead to the later one by a larger cosine than the
    later one to the earlier. CCL's directional negatives ask the same of each cosine alone, as
    one squared error among many.

    Args:
        vectors: The step's vectors.
        window: Utterances of a window, the target included.
    """
    cosine = vectors.second @ vectors.after.transpose(1, 2)
    margin = cosine - cosine.transpose(1, 2)
    ahead = torch.ones_like(margin[0], dtype=torch.bool).triu(1).tril(window - 1)
    asked = vectors.target[:, :, None] & vectors.target[:, None] & ahead
    return functional.softplus(-ORDER_SCALE * margin[asked]).sum() / max(int(asked.sum()), 1)


class _Draw:
    """Random turns of other dialogues, unless the step has one only: then it is `alone`."""

    def __init__(self, batch: Batch, rng: np.random.Generator) -> None:
        self._rng = rng
        self._dialogue = batch.dialogue
        self._spoken, self._targets = (
            {
                dialogue: np.flatnonzero(where & (batch.dialogue != dialogue)[:, None])
                for dialogue in np.unique(batch.dialogue)
            }
            for where in (batch.spoken, batch.target)
        )
        self.alone = len(self._spoken) == 1

    def utterance(self, view: int) -> int:
        return self._one_of(self._spoken[self._dialogue[view]])

    def target(self, view: int) -> int:
        return self._one_of(self._targets[self._dialogue[view]])

    def _one_of(self, places: np.ndarray) -> int:
        return int(places[self._rng.integers(len(places))])
