"""A session at a terminal: you write the user's turns and choose the bot's replies."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnwise.models.data import Utterance, merge_runs
from turnwise.service.client import Goal, ProblemError, RankAnswer, Ranked, Selected, Session
from turnwise.service.wire.fields import MAX_TOP_K, RESPONDER, USER

HELP = """\
Write the user's turn. Then choose the bot's reply: type the number of a
candidate, press Enter for the best one, or write a reply of your own.
  /goal TEXT        rank toward the user saying TEXT; /goal alone removes the goal
  /slot NAME=VALUE  fill the slot {NAME} of candidates; /slot NAME= removes the value
  /explain N        show how much each utterance adds to the score of candidate N
  /undo             undo the last turn
  /quit             end"""


class Chat:
    """Handles lines of input and prints the results."""

    def __init__(self, session: Session, console: Console, *, pool: str, top_k: int) -> None:
        self._session = session
        self._console = console
        self._pool = pool
        self._top_k = top_k
        self._goal = ""
        self._choices: Sequence[Selected | Ranked] = []
        self.speaker = USER
        """The next speaker."""

    def hear(self, line: str) -> bool:
        """Handle a line: a turn, a choice or a command.

        Returns:
            Whether the chat continues.

        Raises:
            ClientError: The service cannot be reached.
        """
        word, _, rest = line.strip().partition(" ")
        try:
            if word == "/quit":
                return False
            if word.startswith("/"):
                self._COMMANDS.get(word, Chat._help)(self, rest.strip())
            elif self.speaker == USER:
                self._say_as_user(line.strip())
            else:
                self._say_as_bot(line.strip())
        except ProblemError as error:
            self._note(str(error))
        return True

    def _say_as_user(self, text: str) -> None:
        if not text:
            return
        answer = self._session.turn(
            USER, text, pool=self._pool, top_k=self._top_k, respond=not self._goal
        )
        self.speaker = RESPONDER
        for warning in answer.warnings:
            self._note(warning)
        if self._goal:
            self._offer_ranked()
        else:
            self._offer(answer.candidates, reranked=answer.reranked)

    def _say_as_bot(self, line: str) -> None:
        if line.isdecimal() or not line:
            if (choice := self._find_choice(line or "1")) is None:
                return
            line = choice.text
            self._note(f"{RESPONDER}: {line}")
        self._session.turn(RESPONDER, line)
        self.speaker = USER
        self._choices = []

    def _offer_ranked(self) -> None:
        """Rank candidates after the session as it is now, and show them."""
        answer = self._rank(self._top_k, explain=False)
        for warning in answer.warnings:
            self._note(warning)
        self._offer(answer.ranking, reranked=answer.reranked)

    def _rank(self, top_k: int, *, explain: bool) -> RankAnswer:
        goals = [Goal(text=self._goal, speaker=USER)] if self._goal else []
        return self._session.rank(pool=self._pool, goals=goals, top_k=top_k, explain=explain)

    def _offer(self, choices: Sequence[Selected | Ranked], *, reranked: bool) -> None:
        self._choices = choices
        if not self._choices:
            self._note(
                f"pool {self._pool} offers no reply; load candidates with `turnwise pool load`"
            )
            return
        score = "re-ranked" if reranked else "score"
        table = Table("", score, f"toward: {escape(self._goal)}" if self._goal else "reply")
        table.box = SIMPLE_HEAD
        for number, choice in enumerate(self._choices, start=1):
            reply = escape(choice.text) + _describe_match(choice)
            table.add_row(str(number), f"{choice.score:.3f}", reply)
        self._console.print(table)

    def _set_goal(self, text: str) -> None:
        self._goal = text
        self._note(f"goal: the user says: {text}" if text else "no goal")
        if self.speaker == RESPONDER:
            self._offer_ranked()

    def _set_slot(self, assignment: str) -> None:
        """Set or remove a value of the session for a slot; without a name, show all of them."""
        slots = self._session.open().slots
        name, _, value = map(str.strip, assignment.partition("="))
        if name:
            slots = {other: slots[other] for other in slots if other != name}
            if value:
                slots[name] = value
            slots = self._session.open(slots=slots).slots
        given = ", ".join(f"{name}={value}" for name, value in slots.items())
        self._note(f"slots: {given or 'none'}")
        if name and self.speaker == RESPONDER:
            self._offer_ranked()

    def _undo(self, _: str) -> None:
        removed = self._session.undo().removed
        self._note(f"undone: {removed.speaker}: {removed.text}")
        self.speaker = USER if removed.speaker == USER else RESPONDER
        if self.speaker == RESPONDER:
            self._offer_ranked()

    def _explain(self, number: str) -> None:
        if (choice := self._find_choice(number)) is None:
            return
        # A candidate that was re-ranked may be far down without the re-ranker.
        ranking = self._rank(MAX_TOP_K, explain=True).ranking
        parts = next((one.contributions for one in ranking if one.text == choice.text), None)
        if parts is None:
            self._note(
                f"pool {self._pool} has changed: candidate {number} is no longer among the best"
            )
            return
        turns = self._session.transcript().transcript
        said = merge_runs(Utterance(turn.speaker, turn.text) for turn in turns)
        # The parts add up to the next-utterance score, even when candidates are ranked by a goal.
        heading = "as next utterance" if self._goal else "contribution"
        table = Table(heading, "", "utterance", box=SIMPLE_HEAD)
        largest = max(map(abs, parts), default=0) or 1
        for share, utterance in zip(parts, said, strict=False):
            bar = "█" * round(10 * max(share, 0) / largest)
            table.add_row(f"{share:+.3f}", bar, escape(f"{utterance.speaker}: {utterance.text}"))
        self._console.print(table)

    def _help(self, _: str) -> None:
        self._console.print(HELP, markup=False, highlight=False)

    def _find_choice(self, number: str) -> Selected | Ranked | None:
        if number.isdecimal() and 0 < int(number) <= len(self._choices):
            return self._choices[int(number) - 1]
        self._note(f"there is no candidate {number}" if self._choices else "no candidates yet")
        return None

    def _note(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, highlight=False)

    _COMMANDS: ClassVar[dict[str, Callable[["Chat", str], None]]] = {
        "/explain": _explain,
        "/goal": _set_goal,
        "/slot": _set_slot,
        "/undo": _undo,
    }


def _describe_match(choice: Selected | Ranked) -> str:
    """Return lines with the example that found a candidate, and the reply that it follows."""
    if choice.matched is None:
        return ""
    lines = ""
    if choice.matched.example:
        lines += f"\n[dim]matched: {escape(choice.matched.example)}[/dim]"
    elif choice.matched.learned:
        lines += "\n[dim]matched: a learned example[/dim]"
    if choice.matched.after:
        lines += f"\n[dim]follows: {escape(choice.matched.after)}[/dim]"
    return lines
