"""The texts of a training step: windows of dialogues, batches of them, and their negatives.

A window says who the responder is, and so gives each utterance of the context one relation. A step
encodes every utterance once for each role ([B1], [B2], and [AFTER] where the responder says it).
It forms all pairs, triples and negatives from these vectors. The two windows of a dialogue together
read each utterance five times: in both context roles with both relations, and as a target. An
encoder with heads reads it twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnwise.models.data import Dialogue, Preferred, Utterance
from turnwise.models.detokenise import tokenise
from turnwise.models.encoder.long_texts import keeps_ends
from turnwise.models.roles import (
    EncoderKind,
    Relation,
    Role,
    RoleText,
    prefixed,
    relation_to,
)
from turnwise.models.training.noise import add_noise

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

TripleTargets = Literal["released", "printed"]
"""The two forms of C3L's targets."""
Positives = Literal["triples", "pairs"]
"""True triples, or CCL's true pairs."""
PASSED_OVER = 8
"""Most of the texts that people passed over for a target that the loss takes."""


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
class WindowBatch:
    """W windows of at most T utterances, as indices into a list of U distinct texts in roles.

    Attributes:
        items: The U distinct texts in their roles.
        first: (W, T) index in `items` of each utterance as [B1]; 0 where there is none.
        second: (W, T) the same as [B2] (CCL: as the only context role).
        after: (W, T) the same as [AFTER]; without heads only of targets.
        spoken: (W, T) whether a window has an utterance there.
        target: (W, T) whether the responder says it.
        dialogue: (W,) equal where two windows are of the same dialogue.
        passed_over: (R,) index in `items`, as [AFTER], of the texts passed over for a target.
        preferred: (R,) index of that target in the flattened (W * T) turns.
    """

    items: list[RoleText]
    first: Int64
    second: Int64
    after: Int64
    spoken: Bool
    target: Bool
    dialogue: Int64
    passed_over: Int64
    preferred: Int64

    @property
    def in_context(self) -> Int64:
        """Indices in `items` of the utterances as a context has them, each once."""
        return np.union1d(self.first[self.spoken], self.second[self.spoken])

    def draw_noisy_items(self, share: float, rng: np.random.Generator) -> list[RoleText]:
        """Return `items`, in which a share of those of contexts has noise; targets stay clean."""
        items = list(self.items)
        for index in self.in_context:
            if rng.random() < share:
                items[index] = items[index]._replace(text=add_noise(items[index].text, rng))
        return items


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
    """Return a window with the spaces around punctuation marks that tokenised corpora have."""
    rewritten = []
    for said in window.utterances:
        new = replace(said, text=tokenise(said.text))
        if isinstance(new, Preferred):
            new = replace(new, passed_over=tuple(map(tokenise, new.passed_over)))
        rewritten.append(new)
    return replace(window, utterances=tuple(rewritten))


def collate(windows: Sequence[Window], kind: EncoderKind) -> WindowBatch:
    """Return windows as a batch for an encoder of a kind."""
    items = _DistinctItems(kind)
    shape = (len(windows), max(len(window.utterances) for window in windows))
    index = {role: np.zeros(shape, np.int64) for role in (Role.FIRST, Role.SECOND, Role.AFTER)}
    spoken = np.zeros(shape, np.bool_)
    target = np.zeros(shape, np.bool_)
    passed_over: list[int] = []
    preferred: list[int] = []
    for row, window in enumerate(windows):
        for turn, utterance in enumerate(window.utterances):
            relation = relation_to(utterance.speaker, window.responder)
            is_target = relation is Relation.SAME
            spoken[row, turn] = True
            target[row, turn] = is_target
            for role in _roles_of(kind, is_target=is_target):
                index[role][row, turn] = items.index_of(RoleText(utterance.text, role, relation))
            if is_target and isinstance(utterance, Preferred):
                for other in utterance.passed_over[:PASSED_OVER]:
                    passed_over.append(items.index_of(RoleText(other, Role.AFTER, relation)))
                    preferred.append(row * shape[1] + turn)
    numbers: dict[Dialogue, int] = {}
    dialogue = [numbers.setdefault(window.dialogue, len(numbers)) for window in windows]
    return WindowBatch(
        items=items.first,
        first=index[Role.FIRST if kind.paired else Role.SECOND],
        second=index[Role.SECOND],
        after=index[Role.AFTER],
        spoken=spoken,
        target=target,
        dialogue=np.array(dialogue, np.int64),
        passed_over=np.array(passed_over, np.int64),
        preferred=np.array(preferred, np.int64),
    )


def _roles_of(kind: EncoderKind, *, is_target: bool) -> list[Role]:
    """Return the roles in which a batch has an utterance."""
    roles = [Role.FIRST, Role.SECOND] if kind.paired else [Role.SECOND]
    # Heads estimate [B2] of every utterance from its [AFTER].
    if is_target or kind is EncoderKind.HEADS:
        roles.append(Role.AFTER)
    return roles


class _DistinctItems:
    """The texts of a batch that an encoder reads differently, in the order of their first use."""

    def __init__(self, kind: EncoderKind) -> None:
        self._kind = kind
        self._index_of: dict[tuple[str, bool], int] = {}
        self.first: list[RoleText] = []
        """The first item of each text."""

    def index_of(self, item: RoleText) -> int:
        """Return the index of a text, which is added if it is new."""
        read = (prefixed(self._kind, item), keeps_ends(item))
        if read not in self._index_of:
            self._index_of[read] = len(self.first)
            self.first.append(item)
        return self._index_of[read]


class _Example(NamedTuple):
    """The indices of b1, b2 and a of an example, and the target of its cosine."""

    first: int
    second: int
    after: int
    score: float


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
    def of(cls, examples: Sequence[_Example]) -> Self:
        """Return some examples column by column."""
        return cls(
            first=torch.tensor([each.first for each in examples], dtype=torch.int64),
            second=torch.tensor([each.second for each in examples], dtype=torch.int64),
            after=torch.tensor([each.after for each in examples], dtype=torch.int64),
            score=torch.tensor([each.score for each in examples], dtype=torch.float32),
        )

    def only(self, chosen: Tensor) -> Self:
        """Return the examples of a bool mask (N,)."""
        return type(self)(
            first=self.first[chosen],
            second=self.second[chosen],
            after=self.after[chosen],
            score=self.score[chosen],
        )


def pair_score(distance: int, window: int) -> float:
    """Return CCL's target cosine (CCL eq. 1): (l - i) / l at distance i in a window of l."""
    return (window - distance) / window


def triple_score(
    first_distance: int, second_distance: int, window: int, form: TripleTargets = "released"
) -> float:
    """Return C3L's target cosine: the sum of two CCL targets, min-max scaled (C3L eq. 1).

    The sum 2 - (2k - (i + j)) / w runs from 3/w (the two oldest utterances of a window of w,
    its last one being the target) to 2 - 3/w (the two newest); it is scaled to [1/w, 1]. The
    released trainer scales from that range, as Figure 5 does; the printed equation scales from
    [1/w, 2 - 3/w], so that the oldest pair of a window of 5 has .47 instead of .2. A window of 3
    holds one pair, whose target is 1.
    """
    low = (3 if form == "released" else 1) / window
    high = 2 - 3 / window
    if high <= low:
        return 1.0
    total = pair_score(first_distance, window) + pair_score(second_distance, window)
    return (total - low) / (high - low) * (1 - 1 / window) + 1 / window


def pair_examples(
    batch: WindowBatch,
    window: int,
    rng: np.random.Generator,
    *,
    directional: bool,
    curved: bool,
    random: bool = True,
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
        random: Whether there are random negatives (False for an ablation).
    """
    examples: list[_Example] = []
    width = batch.spoken.shape[1]
    draw = _Draw(batch, rng)
    for row, turn in np.argwhere(batch.target):
        start = row * width
        after = start + turn
        for earlier in range(max(0, turn - window + 1), turn):
            before = start + earlier
            score = pair_score(turn - earlier, window) if curved else 1.0
            examples.append(_Example(before, before, after, score))
            if random and draw.has_other_dialogues:
                first, last = draw.replace_one(row, before, after)
                examples.append(_Example(first, first, last, 0.0))
        if directional:
            end = min(turn + window, int(batch.spoken[row].sum()))
            turns_after = range(start + turn + 1, start + end)
            examples += [_Example(later, later, after, 0.0) for later in turns_after]
    return Examples.of(examples)


def triple_examples(
    batch: WindowBatch,
    window: int,
    rng: np.random.Generator,
    *,
    directional: bool,
    curved: bool,
    targets: TripleTargets = "released",
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
        targets: The form of the curved scores.
    """
    examples: list[_Example] = []
    width = batch.spoken.shape[1]
    draw = _Draw(batch, rng)
    for row, turn in np.argwhere(batch.target):
        start = row * width
        after = start + turn
        context = range(max(0, turn - window + 1), turn)
        for i, j in combinations(context, 2):
            score = triple_score(turn - i, turn - j, window, targets) if curved else 1.0
            examples.append(_Example(start + i, start + j, after, score))
            if directional:
                examples.append(_Example(start + j, start + i, after, 0.0))
        if not draw.has_other_dialogues:
            continue
        for i in context:
            examples.append(_Example(start + i, draw.utterance(row), after, 0.0))
            examples.append(_Example(draw.utterance(row), start + i, after, 0.0))
            examples.append(_Example(draw.utterance(row), draw.utterance(row), after, 0.0))
    return Examples.of(examples)


class _Draw:
    """Draws random turns of dialogues other than the window's.

    Attributes:
        has_other_dialogues: Whether the batch has more than one dialogue.
    """

    def __init__(self, batch: WindowBatch, rng: np.random.Generator) -> None:
        self._rng = rng
        self._dialogue = batch.dialogue
        self._spoken = _turns_of_others(batch.spoken, batch.dialogue)
        self._targets = _turns_of_others(batch.target, batch.dialogue)
        self.has_other_dialogues = len(self._spoken) > 1

    def utterance(self, window: int) -> int:
        return self._one_of(self._spoken[self._dialogue[window]])

    def target(self, window: int) -> int:
        return self._one_of(self._targets[self._dialogue[window]])

    def replace_one(self, window: int, before: int, after: int) -> tuple[int, int]:
        """Return a pair in which a turn of another dialogue replaces one of the two."""
        if self._rng.random() < 0.5:
            return before, self.target(window)
        return self.utterance(window), after

    def _one_of(self, turns: Int64) -> int:
        return int(turns[self._rng.integers(len(turns))])


def _turns_of_others(chosen: Bool, dialogue: Int64) -> dict[int, Int64]:
    """Return for each dialogue the chosen turns of all others, as flat indices."""
    return {
        number: np.flatnonzero(chosen & (dialogue != number)[:, None])
        for number in np.unique(dialogue).tolist()
    }
