"""What a training step sees: windows of dialogues, each from the side of one responder.

A view fixes who says the targets, hence one relation for each context utterance. Every
utterance is then encoded once a role ([B1], [B2], and [AFTER] where the responder says it),
and all pairs, triples and negatives of the step are formed from these vectors. The two views
of a dialogue cost 5 texts an utterance together: both context roles in both relations, and
the target role.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.detokenise import tokenise
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText, prefixed, relation_to

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class View:
    """A window of a dialogue, and who says its targets."""

    dialogue: Dialogue
    utterances: tuple[Utterance, ...]
    responder: str


@dataclass(frozen=True, slots=True)
class Batch:
    """V views of at most T utterances, as places in a list of distinct texts.

    Attributes:
        texts: U distinct prefixed texts.
        first: (V, T) place in `texts` of each utterance as [B1]; 0 where there is none.
        second: (V, T) the same as [B2] (CCL: as the only context role).
        after: (V, T) the same as [AFTER].
        spoken: (V, T) whether a view has an utterance there.
        target: (V, T) whether the responder says it.
        dialogue: (V,) equal where two views are of the same dialogue.
    """

    texts: list[str]
    first: Int64
    second: Int64
    after: Int64
    spoken: Bool
    target: Bool
    dialogue: Int64


def views_of(dialogue: Dialogue) -> Iterator[View]:
    """Yield a view a speaker who answers somebody in the dialogue."""
    for speaker in dict.fromkeys(u.speaker for u in dialogue.utterances[1:]):
        yield View(dialogue, dialogue.utterances, speaker)


def crop(view: View, length: int, rng: np.random.Generator) -> View:
    """Return a random window of at most `length` utterances, which ends with a target."""
    targets = [
        place
        for place, utterance in enumerate(view.utterances)
        if place > 0 and utterance.speaker == view.responder
    ]
    if len(view.utterances) <= length:
        end = targets[-1]
    else:
        # One turn less than the length may hold, so that the opening is seen from either side.
        # One who fell silent early has only targets with less before them.
        end = int(rng.choice([t for t in targets if t >= length - 2] or targets))
    return replace(view, utterances=view.utterances[max(0, end + 1 - length) : end + 1])


def spaced(view: View) -> View:
    """Return the view in the spaced style of tokenised corpora."""
    rewritten = tuple(Utterance(u.speaker, tokenise(u.text)) for u in view.utterances)
    return replace(view, utterances=rewritten)


def collate(views: Sequence[View], kind: EncoderKind) -> Batch:
    """Lay views out as a batch for an encoder of a kind."""
    shape = (len(views), max(len(view.utterances) for view in views))
    places: dict[str, int] = {}
    roles = {role: np.zeros(shape, np.int64) for role in Role}
    spoken, target = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    context_roles = (Role.FIRST, Role.SECOND) if kind is EncoderKind.TRIPLE else (Role.SECOND,)
    for v, view in enumerate(views):
        for t, utterance in enumerate(view.utterances):
            relation = relation_to(utterance.speaker, view.responder)
            spoken[v, t], target[v, t] = True, relation is Relation.SAME
            wanted = (*context_roles, Role.AFTER) if target[v, t] else context_roles
            for role in wanted:
                text = prefixed(kind, RoleText(utterance.text, role, relation))
                roles[role][v, t] = places.setdefault(text, len(places))
    if kind is not EncoderKind.TRIPLE:
        roles[Role.FIRST] = roles[Role.SECOND]
    numbers: dict[Dialogue, int] = {}
    dialogue = [numbers.setdefault(view.dialogue, len(numbers)) for view in views]
    return Batch(
        list(places),
        roles[Role.FIRST],
        roles[Role.SECOND],
        roles[Role.AFTER],
        spoken,
        target,
        np.array(dialogue, np.int64),
    )
