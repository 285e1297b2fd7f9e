"""The texts of a training step: windows of dialogues, batches of them, and their negatives.

A window fixes who says the targets, hence one relation for each context utterance. Every
utterance of a batch is encoded once a role ([B1], [B2], and [AFTER] where the responder says
it), and all pairs, triples and negatives of the step are formed from these vectors. The two
windows of a dialogue cost 5 texts an utterance together: both context roles in both relations,
and the target role. An encoder with heads reads two texts an utterance for all of these.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.models.data import Dialogue, Preferred, Utterance
from turnwise.models.detokenise import tokenise
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText, prefixed, relation_to

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

PASSED_OVER = 8
"""Most texts for each target, of those that people passed over, that the loss takes."""


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive utterances of a dialogue, and the speaker who says the targets among them."""

    dialogue: Dialogue
    utterances: tuple[Utterance, ...]
    responder: str

    def both_sides(self) -> "Iterator[Window]":
        """Yield the same utterances as a window for each speaker who answers somebody in them."""
        for speaker in dict.fromkeys(u.speaker for u in self.utterances[1:]):
            yield replace(self, responder=speaker)


@dataclass(frozen=True, slots=True)
class Batch:
    """W windows of at most T utterances, as indices in a list of distinct texts.

    Attributes:
        texts: U distinct texts, with their prefixes.
        without_prefix: (U) the same without them.
        first: (W, T) index in `texts` of each utterance as [B1]; 0 where there is none.
        second: (W, T) the same as [B2] (CCL: as the only context role).
        after: (W, T) the same as [AFTER]; without heads only of targets.
        spoken: (W, T) whether a window has an utterance there.
        target: (W, T) whether the responder says it.
        dialogue: (W,) equal where two windows are of the same dialogue.
        passed_over: (R,) index in `texts`, as [AFTER], of what people passed over for a target.
        preferred: (R,) the target, as a index in the flattened (W * T) turns.
    """

    texts: list[str]
    without_prefix: list[str]
    first: Int64
    second: Int64
    after: Int64
    spoken: Bool
    target: Bool
    dialogue: Int64
    passed_over: Int64
    preferred: Int64


def windows_of(dialogue: Dialogue) -> Iterator[Window]:
    """Yield the whole dialogue as a window for each speaker who answers somebody in it."""
    yield from Window(dialogue, dialogue.utterances, "").both_sides()


def crop(window: Window, length: int, rng: np.random.Generator) -> Window:
    """Return a random part of at most `length` utterances that ends with a target."""
    targets = [
        index
        for index, utterance in enumerate(window.utterances)
        if index > 0 and utterance.speaker == window.responder
    ]
    if len(window.utterances) <= length:
        end = targets[-1]
    else:
        # A target one turn before the length is reached counts too, so that a dialogue's opening
        # is seen from both sides. A speaker who fell silent early has only earlier targets.
        end = int(rng.choice([t for t in targets if t >= length - 2] or targets))
    return replace(window, utterances=window.utterances[max(0, end + 1 - length) : end + 1])


def spaced(window: Window) -> Window:
    """Return the window in the spaced style of tokenised corpora."""
    rewritten = []
    for said in window.utterances:
        new = replace(said, text=tokenise(said.text))
        if isinstance(new, Preferred):
            new = replace(new, passed_over=tuple(map(tokenise, new.passed_over)))
        rewritten.append(new)
    return replace(window, utterances=tuple(rewritten))


def collate(windows: Sequence[Window], kind: EncoderKind) -> Batch:
    """Lay windows out as a batch for an encoder of a kind."""
    shape = (len(windows), max(len(window.utterances) for window in windows))
    indices: dict[str, int] = {}
    without_prefix: list[str] = []

    def index_of(item: RoleText) -> int:
        index = indices.setdefault(prefixed(kind, item), len(indices))
        without_prefix.extend([item.text] * (index == len(without_prefix)))
        return index

    roles = {role: np.zeros(shape, np.int64) for role in Role}
    spoken, target = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    context_roles = (Role.FIRST, Role.SECOND) if kind.paired else (Role.SECOND,)
    passed_over: list[tuple[int, int]] = []
    for v, window in enumerate(windows):
        for t, utterance in enumerate(window.utterances):
            relation = relation_to(utterance.speaker, window.responder)
            spoken[v, t], target[v, t] = True, relation is Relation.SAME
            supposed = kind is EncoderKind.HEADS  # its heads read what may be said
            wanted = (*context_roles, Role.AFTER) if target[v, t] or supposed else context_roles
            for role in wanted:
                roles[role][v, t] = index_of(RoleText(utterance.text, role, relation))
            if target[v, t] and isinstance(utterance, Preferred):
                for other in utterance.passed_over[:PASSED_OVER]:
                    index = index_of(RoleText(other, Role.AFTER, relation))
                    passed_over.append((index, v * shape[1] + t))
    if not kind.paired:
        roles[Role.FIRST] = roles[Role.SECOND]
    numbers: dict[Dialogue, int] = {}
    dialogue = [numbers.setdefault(window.dialogue, len(numbers)) for window in windows]
    others = np.array(passed_over, np.int64).reshape(-1, 2)
    return Batch(
        list(indices),
        without_prefix,
        roles[Role.FIRST],
        roles[Role.SECOND],
        roles[Role.AFTER],
        spoken,
        target,
        np.array(dialogue, np.int64),
        others[:, 0],
        others[:, 1],
    )


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples of a curved objective, as indices in the flattened (W * T) turns of a batch.

    Attributes:
        first: (N,) int64 indices of b1; for pairs equal to `second`.
        second: (N,) int64 indices of b2.
        after: (N,) int64 indices of a.
        score: (N,) float32 targets of the cosine; 0 for negatives.
    """

    first: Tensor
    second: Tensor
    after: Tensor
    score: Tensor

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, float]]) -> Self:
        """Make examples of (first, second, after, score)."""
        indices = torch.tensor([row[:3] for row in rows], dtype=torch.int64).reshape(-1, 3)
        first, second, after = indices.unbind(1)
        score = torch.tensor([row[3] for row in rows], dtype=torch.float32)
        return cls(first, second, after, score)


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
    curved score; a random negative, in which an utterance of another dialogue replaces one of
    the two; and, each with score 0, the pairs of the target with the turns that follow it.

    Args:
        batch: The step's windows.
        window: Utterances that are looked at together, the target included.
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
        batch: The step's windows.
        window: Utterances that are looked at together, the target included.
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


class _Draw:
    """Draws random turns of other dialogues; `alone` where the batch has only one dialogue."""

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

    def utterance(self, window: int) -> int:
        return self._one_of(self._spoken[self._dialogue[window]])

    def target(self, window: int) -> int:
        return self._one_of(self._targets[self._dialogue[window]])

    def _one_of(self, indices: Int64) -> int:
        return int(indices[self._rng.integers(len(indices))])
