"""The responder of a session: the speaker who says the candidates.

Without another name for it, the responder is `bot` or `assistant`: the first of them who speaks.
Both are the same speaker, under the name that spoke first.
"""

from collections.abc import Collection, Sequence

from turnwise.service.sessions.turns import Turn
from turnwise.service.wire.fields import RESPONDER

_DEFAULT_NAMES = frozenset({RESPONDER, "assistant"})
_TURNS = 4
"""Turns after which the responder should have spoken, where several speakers speak."""
_TURNS_ALONE = 8
"""Turns after which the responder should have spoken, where one speaker speaks."""


def choose_responder(responder: str, speakers: Collection[str]) -> str:
    """Return the name of the responder: the given one, or the default name that spoke first.

    Args:
        responder: The responder that a session names, or the default one.
        speakers: The speakers of the turns, oldest first.
    """
    if responder in speakers or responder not in _DEFAULT_NAMES:
        return responder
    return next((each for each in speakers if each in _DEFAULT_NAMES), responder)


def name_speaker(speaker: str, responder: str) -> str:
    """Return the name of a speaker in a session: that of the responder for each default name."""
    is_responder = {speaker, responder} <= _DEFAULT_NAMES
    return responder if is_responder else speaker


def warn_without_responder(turns: Sequence[Turn], responder: str) -> str | None:
    """Return a warning if the responder should have spoken in these turns, and has not."""
    speakers = list(dict.fromkeys(turn.speaker for turn in turns))
    is_alone = len(speakers) == 1
    if responder in speakers or len(turns) < (_TURNS_ALONE if is_alone else _TURNS):
        return None
    if is_alone:
        return (
            f"no turn is by the responder, '{responder}', so that all turns are one utterance of "
            f"'{speakers[0]}': post what the responder says as well"
        )
    return (
        f"no turn is by the responder, '{responder}', who says the candidates: if this is "
        f"'{speakers[0]}' or '{speakers[1]}', name it with PUT /sessions/{{id}} before the first "
        f"turn, or let it speak as '{responder}'"
    )
