"""`turnwise calibrate`: fits the confidences of a pool to your dialogues."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.progress import track

from turnwise.models.errors import TurnwiseError, first_error
from turnwise.models.texts import fold_text
from turnwise.service.cli.connected import LOCAL, Key, Url, connected
from turnwise.service.cli.options import Data, Limit, read

if TYPE_CHECKING:
    from turnwise.models.data import Dialogue
    from turnwise.service.client import Client, GivenTurn

FEWEST = 50
"""Right first candidates, and wrong ones, that a fit of two numbers needs."""
_OTHER = "user"


class _Reply(NamedTuple):
    """A reply of the responder, its context, and the number of the dialogue."""

    context: "list[GivenTurn]"
    text: str
    dialogue: int


class _Answer(NamedTuple):
    """A confidence, whether the first candidate was the reply, and the number of the dialogue."""

    confidence: float
    right: bool
    dialogue: int


def calibrate(
    *,
    pool: Annotated[str, typer.Option(help="Name of the pool.")],
    data: Data,
    responder: Annotated[
        str, typer.Option(help="The speaker whose replies the pool holds.")
    ] = "bot",
    limit: Limit = None,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Fit the confidences in a pool of a running service to your own dialogues.

    A first candidate is right if it is the true reply; case, white space and final marks do not
    count. The pool keeps a slope and an offset, which
    correct the logit of each confidence.
    """
    from turnwise.service.client import PoolCalibration  # noqa: PLC0415

    dialogues = read(data, limit)
    with connected(url, key) as client:
        limits = client.version().limits
        chars, turns = int(limits["max_text_chars"]), int(limits["max_turns"])
        replies = find_replies(dialogues, responder, chars, turns)
        current = client.pool(pool).info().calibration or PoolCalibration(slope=1, offset=0)
        asked = track(replies, "asking", transient=True)
        answers = [_ask(client, pool, reply) for reply in asked]
        _check(pool, Counter(answer.right for answer in answers))
        slope, offset, before, after = _fit(answers)
        if slope <= 0:
            raise TurnwiseError(
                f"pool '{pool}': right answers are no more confident than wrong ones"
            )
        # The confidences of this pool are corrected already, so that this correction comes after.
        made = PoolCalibration(slope=slope * current.slope, offset=slope * current.offset + offset)
        client.pool(pool).create(calibration=made)
    right = sum(answer.right for answer in answers)
    typer.echo(
        f"pool {pool}: {len(answers)} answers, {right} of them right\n"
        f"calibration error {before:.3f} before, {after:.3f} now\n"
        f"slope {made.slope:.3f}, offset {made.offset:.3f}"
    )


def find_replies(
    dialogues: "Sequence[Dialogue]", responder: str, chars: int, longest: int
) -> list[_Reply]:
    """Return the replies of a speaker, who is the responder of their contexts.

    Args:
        dialogues: The dialogues.
        responder: The speaker.
        chars: Characters of a text that the service reads.
        longest: Turns of a context that it reads, the newest ones.

    Raises:
        TurnwiseError: That speaker has no replies, or in one dialogue only; or the service takes no
            such name.
    """
    from pydantic import ValidationError  # noqa: PLC0415

    from turnwise.service.client import GivenTurn  # noqa: PLC0415
    from turnwise.service.wire.fields import RESPONDER  # noqa: PLC0415

    def name(speaker: str) -> str:
        if speaker == responder:
            return RESPONDER
        return _OTHER if speaker == RESPONDER else speaker

    replies: list[_Reply] = []
    for number, dialogue in enumerate(dialogues):
        try:
            turns = [
                GivenTurn(speaker=name(said.speaker), text=said.text[:chars])
                for said in dialogue.utterances
            ]
        except ValidationError as error:
            raise TurnwiseError(f"dialogue '{dialogue.id}', {first_error(error)}") from None
        replies += [
            _Reply(turns[max(0, place - longest) : place], turn.text, number)
            for place, turn in enumerate(turns)
            if place and turn.speaker == RESPONDER
        ]
    if not replies:
        speakers = sorted({said.speaker for each in dialogues for said in each.utterances})
        known = ", ".join(speakers[:10])
        raise TurnwiseError(f"'{responder}' says no reply in the dialogues of {known}: --responder")
    if len({reply.dialogue for reply in replies}) == 1:  # the error is measured on others
        raise TurnwiseError("a calibration needs at least two dialogues with replies, not one")
    return replies


def _ask(client: "Client", pool: str, reply: _Reply) -> _Answer:
    """Return the confidence in the first candidate that a turn would offer.

    Raises:
        TurnwiseError: The answer has no confidence.
    """
    answer = client.rank(reply.context, pool=pool, top_k=1, repeat="last")
    if answer.confidence is None:
        raise TurnwiseError(
            f"answers of pool '{pool}' have no confidence: it has fewer than two candidates or "
            "another encoder, or the model's card has no calibration"
        )
    is_right = fold_text(answer.ranking[0].text) == fold_text(reply.text)
    return _Answer(answer.confidence, is_right, reply.dialogue)


def _check(pool: str, count: Counter[bool]) -> None:
    if min(count[True], count[False]) < FEWEST:
        raise TurnwiseError(
            f"pool '{pool}': {count[True]} first candidates are right and {count[False]} are "
            f"wrong; a calibration needs at least {FEWEST} of each"
        )


def _fit(answers: Sequence[_Answer]) -> tuple[float, float, float, float]:
    """Return the slope, the offset, and the calibration errors before and after (held out)."""
    import numpy as np  # noqa: PLC0415 - an extra, as the rest

    from turnwise.models.confidence import held_out, logits, regress  # noqa: PLC0415
    from turnwise.models.evaluation.metrics import calibration_error  # noqa: PLC0415

    confidence, right, dialogue = map(np.array, zip(*answers, strict=True))
    features = logits(confidence)[:, None]
    slope, offset = regress(features, right).tolist()
    corrected = held_out(features, right, dialogue)
    before, after = (calibration_error(each, right) for each in (confidence, corrected))
    return slope, offset, before, after
