"""The contexts of a split of dialogues, and the texts that they are scored against."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.models.data import Dialogue, Utterance
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.metrics import Places

LENGTHS = range(2, 11)


@dataclass(frozen=True, slots=True)
class Context:
    """The first h utterances of a dialogue, and the one that came next."""

    history: tuple[Utterance, ...]
    target: Utterance

    @property
    def texts(self) -> list[str]:
        """The texts of the history, oldest first."""
        return [said.text for said in self.history]


@dataclass(frozen=True, slots=True)
class Split:
    """Contexts of all lengths, and the distinct texts that they are scored against.

    Attributes:
        contexts: N contexts.
        pool: Distinct texts.
        true: (N,) place in the pool of each context's true next utterance.
    """

    contexts: tuple[Context, ...]
    pool: tuple[str, ...]
    true: Places


def make_split(
    dialogues: Iterable[Dialogue], lengths: Sequence[int] = LENGTHS, *, full_pool: bool = True
) -> Split:
    """Collect the contexts of all lengths.

    Args:
        dialogues: The dialogues of a split.
        lengths: History lengths h; a dialogue longer than h gives a context.
        full_pool: Put every distinct utterance into the pool, not only those that come next in
            some context.

    Raises:
        TurnwiseError: No dialogue is longer than the shortest history.
    """
    dialogues = list(dialogues)
    contexts = tuple(
        Context(dialogue.utterances[:h], dialogue.utterances[h])
        for h in lengths
        for dialogue in dialogues
        if len(dialogue.utterances) > h
    )
    if not contexts:
        raise TurnwiseError(f"no dialogue is longer than {min(lengths)} utterances")
    said = [context.target.text for context in contexts]
    if full_pool:
        said += [said.text for dialogue in dialogues for said in dialogue.utterances]
    place = {text: place for place, text in enumerate(dict.fromkeys(said))}
    true = np.array([place[context.target.text] for context in contexts], np.intp)
    return Split(contexts, tuple(place), true)
