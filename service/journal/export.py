"""Joins the lines of all replicas into dialogues, as `train` and `evaluate` read them.

The reply to a turn is what the responder said next. If it said nothing, the reply is the chosen
candidate, or its edited text. A candidate counts as chosen if the responder's next turn names it,
or else if feedback says that it was chosen or edited. A reply has the fields that are known:

- `shown`: the candidates from which people chose, best first: those with an event `shown`, or all
  that were offered if there is no such event;
- `chosen`: the one that was chosen or edited;
- `rejected`: those that were rejected as wrong.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from turnwise.service.journal.files import Deletions, list_files, read_lines
from turnwise.service.journal.lines import (
    DeletionLine,
    FeedbackLine,
    SessionLine,
    TurnLine,
    UndoLine,
)


@dataclass(slots=True)
class JournalTurn:
    """A turn, and the feedback on what it offered."""

    line: TurnLine
    feedback: list[FeedbackLine] = field(default_factory=list)


class Conversation(NamedTuple):
    """The turns of a session, or a part of them if it began again or lines are missing."""

    namespace: str
    session: str
    part: int
    """Number of the part, from 0."""
    turns: list[JournalTurn]


def export_dialogues(folders: Iterable[Path], pool: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the dialogues of some folders; raises as `read_conversations`.

    Args:
        folders: The folders of all replicas.
        pool: Yield only dialogues with a turn that this pool answered. Replies to their other turns
            have no `shown`, `chosen` and `rejected`. None for all dialogues.
    """
    for namespace, session, part, turns in read_conversations(folders):
        if pool is not None and not any(_has_pool(turn, pool) for turn in turns):
            continue
        again = f"-{part + 1}" if part else ""
        utterances = [*_list_utterances(turns, pool)]
        yield {"id": f"{namespace}/{session}{again}", "utterances": utterances}


def _has_pool(turn: JournalTurn, name: str) -> bool:
    return turn.line.pool is not None and turn.line.pool.name == name


def read_conversations(folders: Iterable[Path]) -> Iterator[Conversation]:
    """Yield the conversations of some folders, without deleted sessions and undone turns.

    A session becomes several conversations if it expired and began again, or if lines are missing.
    All lines are in memory at once.

    Raises:
        DataError: A folder holds no journal.
        OSError: A file cannot be read.
    """
    lines = [line for file in list_files(folders) for line, _ in read_lines(file)]
    deletions = Deletions(lines)
    sessions: defaultdict[tuple[str, str], list[SessionLine]] = defaultdict(list)
    for line in lines:
        if not isinstance(line, DeletionLine) and line not in deletions:
            sessions[line.namespace, line.session].append(line)
    for (namespace, session), of_session in sessions.items():
        for part, turns in enumerate(_split_at_gaps(of_session)):
            yield Conversation(namespace, session, part, turns)


def _split_at_gaps(lines: Sequence[SessionLine]) -> Iterator[list[JournalTurn]]:
    """Yield the turns that were not undone, split where the session began again or has a gap."""
    turns: list[JournalTurn] = []
    # Feedback does not change the version, so it comes after the turn of the same version, by time.
    for line in sorted(lines, key=lambda each: (each.version, each.what == "feedback", each.at)):
        match line:
            case TurnLine():
                if turns and (line.turn == 1 or line.turn > turns[-1].line.turn + 1):
                    yield turns
                    turns = []
                turns = [*_keep_turns_before(line, turns), JournalTurn(line)]
            case UndoLine():
                turns = _keep_turns_before(line, turns)
            case FeedbackLine():
                for turn in turns:
                    if turn.line.turn == line.turn:
                        turn.feedback.append(line)
    if turns:
        yield turns


def _keep_turns_before(line: TurnLine | UndoLine, turns: list[JournalTurn]) -> list[JournalTurn]:
    return [turn for turn in turns if turn.line.turn < line.turn]


def _list_utterances(turns: Sequence[JournalTurn], pool: str | None) -> Iterator[dict[str, Any]]:
    """Yield the turns as utterances, and the chosen replies that no turn says.

    The next utterance of the responder has the fields that say how it was chosen, if it was chosen
    from the pool, or if no pool is named.
    """
    fields: dict[str, Any] = {}
    responder = turns[-1].line.responder
    for turn, after in zip(turns, [*turns[1:], None], strict=True):
        line = turn.line
        yield {"speaker": line.speaker, "text": line.text, **fields}
        fields, reply = _describe_reply(turn, after)
        if pool is not None and not _has_pool(turn, pool):
            fields = {}
        if after and after.line.speaker == responder:
            continue
        if reply:
            yield {"speaker": responder, "text": reply, **fields}
        fields = {}


def find_choice(turn: JournalTurn, after: JournalTurn | None) -> str | None:
    """Return the id of the candidate that was chosen after a turn; None if none is known.

    Args:
        turn: The turn.
        after: The next turn, if there is one.
    """
    if after and after.line.candidate:
        return after.line.candidate
    choices = [each for each in turn.feedback if each.event in {"chosen", "edited"}]
    return choices[-1].candidate if choices else None


def _describe_reply(
    turn: JournalTurn, after: JournalTurn | None
) -> tuple[dict[str, Any], str | None]:
    """Return the fields of the reply to a turn, and the reply if one was chosen."""
    texts = {each.id: each.text for each in turn.line.offered}
    events = [each for each in turn.feedback if each.candidate in texts]
    shown = [texts[each.candidate] for each in events if each.event == "shown"]
    rejected = [texts[each.candidate] for each in events if each.event == "rejected"]
    fields: dict[str, Any] = {}
    choice = find_choice(turn, after)
    chosen = texts.get(choice) if choice else None
    if chosen:
        fields["chosen"] = chosen
        seen = {*(shown or texts.values()), chosen}
        fields["shown"] = [text for text in dict.fromkeys(texts.values()) if text in seen]
    if rejected:
        fields["rejected"] = rejected
    edited = [each.text for each in events if each.candidate == choice and each.text]
    return fields, edited[-1] if edited else chosen
