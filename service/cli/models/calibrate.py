"""`turnwise calibrate`: fits the confidences of a pool to your dialogues."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.progress import track

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.errors import TurnwiseError, first_error
from turnwise.models.texts import fold_text, write_count
from turnwise.service.cli.connected import LOCAL, Key, Url, connected
from turnwise.service.cli.options import Data, Limit, read_files, read_format, with_options

if TYPE_CHECKING:
    from turnwise.models.data import Dialogue
    from turnwise.service.client import Client, GivenTurn, PoolCalibration, Ranked, Selected

FEWEST = 10
"""Fewest answers that a calibration needs."""
FEW = 200
"""With fewer answers than this, the command says that they are few."""
PRIOR_WEIGHT = (4.0, 1.0)
"""The prior of slope and offset: 1 and 0, the calibration of the model's card, with standard
deviations of 0.5 and 1. Forty answers that agree with each other outweigh it."""
_COPIES = 10
"""Candidates among which the one with a reply's own text is looked for."""


class _Reply(NamedTuple):
    """A reply of the responder, its context, and the number of the dialogue."""

    context: "list[GivenTurn]"
    text: str
    dialogue: int


class _Answer(NamedTuple):
    """A confidence, whether the first candidate was right, and the number of the dialogue."""

    confidence: float
    is_right: bool
    dialogue: int


class _Fit(NamedTuple):
    """A slope and an offset, and the calibration errors before and after on held-out dialogues."""

    slope: float
    offset: float
    before: float
    after: float

    @property
    def helps(self) -> bool:
        """Whether the fit lowers the calibration error."""
        return self.after < self.before


@with_options(form=read_format)
def calibrate(
    *,
    form: DialogueFormat,
    pool: Annotated[str, typer.Option(help="Name of the pool.")],
    data: Data,
    responder: Annotated[
        str, typer.Option(help="The speaker whose replies the pool holds.")
    ] = "bot",
    same: Annotated[
        str | None,
        typer.Option(
            help="Field of the metadata; candidates that are equal in it are one answer.",
            show_default="those of one group",
        ),
    ] = None,
    limit: Limit = None,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Fit the confidences in a pool of a running service to your own dialogues.

    A first candidate is right if it is the true reply or another wording of its group. Case, white
    space and final marks do not count. The pool keeps a slope and an offset, which correct the
    logit of each confidence, unless those that it has are as good. With few answers they stay near
    the calibration of the model.
    """
    from turnwise.service.client import PoolCalibration

    dialogues = read_files(data, limit, form)
    with connected(url, key) as client:
        limits = client.version().limits
        chars = int(limits.get("max_message_chars", limits["max_text_chars"]))
        turns = int(limits["max_turns"])
        replies = find_replies(dialogues, responder, chars, turns)
        current = _read_calibration(client, pool)
        asked = track(replies, "asking", transient=True)
        answers = [_ask(client, pool, reply, same) for reply in asked]
        fit = _fit(pool, answers, current)
        if fit.helps:
            made = PoolCalibration(slope=fit.slope, offset=fit.offset)
            client.pool(pool).create(calibration=made)
    _report(pool, answers, fit)


def _read_calibration(client: "Client", pool: str) -> "PoolCalibration":
    """Return the current calibration of a pool.

    Raises:
        TurnwiseError: It makes all confidences equal.
    """
    from turnwise.service.client import PoolCalibration

    calibration = client.pool(pool).info().calibration or PoolCalibration(slope=1, offset=0)
    if calibration.slope == 0:
        raise TurnwiseError(
            f"pool '{pool}' has a calibration of slope 0, which makes all confidences equal: "
            "remove it first"
        )
    return calibration


def _report(pool: str, answers: Sequence[_Answer], fit: _Fit) -> None:
    right = sum(answer.is_right for answer in answers)
    typer.echo(f"pool {pool}: {write_count(len(answers), 'answer')}, {right} of them right")
    if fit.helps:
        typer.echo(f"calibration error {fit.before:.3f} before, {fit.after:.3f} now")
        typer.echo(f"slope {fit.slope:.3f}, offset {fit.offset:.3f}")
    else:
        typer.echo(
            f"nothing was changed: on these answers the calibration error is {fit.before:.3f}, and "
            f"a new fit would have {fit.after:.3f}"
        )
    if len(answers) < FEW:
        share = right / len(answers)
        error = (share * (1 - share) / len(answers)) ** 0.5
        typer.echo(
            f"{len(answers)} answers are few: they tell the share of right ones to within "
            f"{2 * error:.2f}. So a fit stays near the model's own calibration; more answers move "
            "it further."
        )


def find_replies(
    dialogues: "Sequence[Dialogue]", responder: str, chars: int, longest: int
) -> list[_Reply]:
    """Return the replies of a speaker with their contexts.

    Args:
        dialogues: The dialogues.
        responder: The speaker.
        chars: Characters of a text that the service reads.
        longest: Turns of a context that it reads, the newest ones.

    Raises:
        TurnwiseError: The speaker has no replies, or replies in only one dialogue; or the service
            does not accept the name.
    """
    from turnwise.service.wire.fields import RESPONDER

    replies: list[_Reply] = []
    for number, dialogue in enumerate(dialogues):
        turns = _read_turns(dialogue, responder, chars)
        replies += [
            _Reply(turns[max(0, index - longest) : index], turn.text, number)
            for index, turn in enumerate(turns)
            if index and turn.speaker == RESPONDER
        ]
    if not replies:
        speakers = sorted({said.speaker for each in dialogues for said in each.utterances})
        known = ", ".join(speakers[:10])
        raise TurnwiseError(
            f"'{responder}' says no reply in the dialogues of {known}: name one with --responder"
        )
    if len({reply.dialogue for reply in replies}) == 1:  # the error is measured on others
        raise TurnwiseError("a calibration needs at least two dialogues with replies, not one")
    return replies


def _read_turns(dialogue: "Dialogue", responder: str, chars: int) -> "list[GivenTurn]":
    """Return the turns of a dialogue, in which the responder has the default name."""
    from pydantic import ValidationError

    from turnwise.service.client import GivenTurn
    from turnwise.service.wire.fields import RESPONDER, USER

    names = {RESPONDER: USER, responder: RESPONDER}
    try:
        return [
            GivenTurn(speaker=names.get(said.speaker, said.speaker), text=said.text[:chars])
            for said in dialogue.utterances
        ]
    except ValidationError as error:
        raise TurnwiseError(f"dialogue '{dialogue.id}', {first_error(error)}") from None


def _ask(client: "Client", pool: str, reply: _Reply, same: str | None) -> _Answer:
    """Return the confidence in the first candidate that a turn would offer.

    Args:
        client: Talks to the service.
        pool: The pool to ask.
        reply: The context, and the true reply.
        same: Field of the metadata that wordings of an answer share; None for their group.

    Raises:
        TurnwiseError: The answer has no confidence.
    """
    answer = client.rank(reply.context, pool=pool, top_k=1, repeat="last")
    if answer.confidence is None:
        raise TurnwiseError(
            f"answers of pool '{pool}' have no confidence: it has fewer than two candidates or "
            "another encoder, or the model's card has no calibration"
        )
    first = answer.ranking[0]
    is_right = fold_text(first.text) == fold_text(reply.text)
    name = _name_answer(first, same)
    if not is_right and name is not None:
        is_right = name == _name_reply(client, pool, reply.text, same)
    return _Answer(answer.confidence, is_right, reply.dialogue)


def _name_answer(candidate: "Ranked | Selected", same: str | None) -> object:
    """Return the value that wordings of one answer share; None for an answer of its own."""
    if same is None:
        return candidate.group
    return (candidate.metadata or {}).get(same)


def _name_reply(client: "Client", pool: str, text: str, same: str | None) -> object:
    """Return `_name_answer` of the candidate with this text; None if the pool has no such one."""
    for found in client.pool(pool).search(text, top_k=_COPIES).candidates:
        if fold_text(found.text) == fold_text(text):
            return _name_answer(found, same)
    return None


def _fit(pool: str, answers: Sequence[_Answer], current: "PoolCalibration") -> _Fit:
    """Fit slope and offset to answers, whose confidences the current calibration has corrected.

    Raises:
        TurnwiseError: There are too few answers, or right ones are no more confident than others.
    """
    import numpy as np

    from turnwise.models.confidence import Prior, held_out, logits, regress
    from turnwise.models.evaluation.metrics import calibration_error

    if len(answers) < FEWEST:
        raise TurnwiseError(
            f"pool '{pool}': {write_count(len(answers), 'answer')}; a calibration needs at least "
            f"{FEWEST}"
        )
    confidence = np.array([answer.confidence for answer in answers])
    is_right = np.array([answer.is_right for answer in answers])
    dialogue = np.array([answer.dialogue for answer in answers])
    of_model = (logits(confidence) - current.offset)[:, None] / current.slope
    prior = Prior(np.array([1.0, 0.0]), np.array(PRIOR_WEIGHT))
    slope, offset = regress(of_model, is_right, prior).tolist()
    if slope <= 0:
        raise TurnwiseError(f"pool '{pool}': right answers are no more confident than wrong ones")
    corrected = held_out(of_model, is_right, dialogue, prior)
    before = calibration_error(confidence, is_right)
    return _Fit(slope, offset, before, calibration_error(corrected, is_right))
