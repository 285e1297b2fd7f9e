"""The replies of the responder in a session, and which of them must not be offered again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.roles import candidate_inputs
from turnwise.models.texts import fold_text
from turnwise.service.selection.context import Contexts
from turnwise.service.sessions.turns import Turn
from turnwise.service.wire.fields import Repeat


@dataclass(frozen=True)
class Repeats:
    """The replies of a session, and which of them must not be offered again.

    Attributes:
        texts: The k texts, as `fold_text` gives them, that must not be offered again.
        after: (k, d) their [AFTER], if candidates that are close to them must not be offered
            either; else (0, d).
        ids: The ids of the candidates with these texts, as far as they are known.
        replies: All turns of the responder, oldest first.
    """

    texts: frozenset[str]
    after: Float32
    ids: frozenset[str] = frozenset()
    replies: tuple[Turn, ...] = ()

    @cached_property
    def history(self) -> Mapping[str, int]:
        """The number of the last reply with each folded text, and with each candidate id.

        It is computed on demand: only candidates of a group need it.
        """
        return {
            said: number
            for number, turn in enumerate(self.replies)
            for said in (fold_text(turn.text), turn.candidate)
            if said is not None
        }


NO_REPEATS = Repeats(frozenset(), np.empty((0, 0), np.float32))


async def collect_repeats(
    contexts: Contexts, turns: Sequence[Turn], responder: str, repeat: Repeat
) -> Repeats:
    """Return the replies in these turns, and which of them must not be offered again.

    Args:
        contexts: Encodes the replies for "near".
        turns: The turns of a session, oldest first.
        responder: The speaker who will say the candidates.
        repeat: Which replies must not be offered again: with "last" those of the responder's last
            utterance, with false and "near" all, with true none.
    """
    replies = tuple(turn for turn in turns if turn.speaker == responder)
    if repeat is True:
        return replace(NO_REPEATS, replies=replies)
    barred = replies
    if repeat == "last":
        utterances = groupby(turns, key=lambda turn: turn.speaker)
        said = [tuple(utterance) for speaker, utterance in utterances if speaker == responder]
        barred = said[-1] if said else ()
    texts = frozenset(fold_text(turn.text) for turn in barred)
    ids = frozenset(turn.candidate for turn in barred if turn.candidate)
    after = NO_REPEATS.after
    if repeat == "near" and texts:
        distinct = dict.fromkeys(turn.text for turn in barred)
        after = await contexts.encode_texts(candidate_inputs(distinct))
    return Repeats(texts, after, ids, replies)
