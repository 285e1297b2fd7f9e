"""Candidates for short-term planning: problems, their files, and two ways to propose replies."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from models.dialogue import Dialogue, Utterance, read_jsonl
from models.encoder import UtteranceEncoder
from models.errors import DataError, TurnwiseError
from models.evaluation.vectors import Key, VectorTable, after_keys, context_keys
from models.roles import Role

CANDIDATES = 100

Propose = Callable[[Dialogue, int], Sequence[str]]
"""From a dialogue and a history length to replies that might come next."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Replies to a context, of which one was said, and an utterance that came some turns later.

    Attributes:
        context: The history, oldest first.
        candidates: Texts that the speaker of `true` might say; the true one is not among them.
        true: What was said next.
        goal: What was said `goal_distance` utterances after the true one.
        goal_distance: At least 1; odd where the other of two speakers says the goal.
    """

    context: tuple[Utterance, ...]
    candidates: tuple[str, ...]
    true: Utterance
    goal: Utterance
    goal_distance: int


def make_problems(
    dialogues: Iterable[Dialogue],
    lengths: Iterable[int],
    distances: Sequence[int],
    propose: Propose,
) -> list[Problem]:
    """Make a problem for each history length and goal distance that a dialogue is long enough for.

    Raises:
        TurnwiseError: No dialogue is long enough for any.
    """
    dialogues = list(dialogues)
    problems = [
        problem
        for length in lengths
        for dialogue in dialogues
        for problem in _problems_of(dialogue, length, distances, propose)
    ]
    if not problems:
        raise TurnwiseError("no dialogue is long enough for these histories and goal distances")
    return problems


def hard_negatives(
    encoder: UtteranceEncoder,
    dialogues: Iterable[Dialogue],
    lengths: Iterable[int],
    count: int = CANDIDATES,
) -> Propose:
    """Propose the utterances of other dialogues that fit a context best.

    The fit is the dot product with the sum of the context's vectors, as in next-utterance
    selection: every candidate is a plausible reply, so that only the goal tells them apart.
    What is said anywhere in the context's own dialogue is left out, the true one with it.
    """
    dialogues = list(dialogues)
    pool = list(dict.fromkeys(said.text for d in dialogues for said in d.utterances))
    place = {text: index for index, text in enumerate(pool)}
    openings = [(d, h) for h in lengths for d in dialogues if len(d.utterances) > h]
    needed = [key for dialogue, h in openings for key in _query_keys(dialogue, h)]
    table = VectorTable(encoder, [*after_keys(pool), *needed])
    vectors = table[after_keys(pool)]

    def propose(dialogue: Dialogue, length: int) -> list[str]:
        scores = vectors @ table[_query_keys(dialogue, length)].sum(axis=0)
        scores[[place[said.text] for said in dialogue.utterances]] = -np.inf
        nearest = np.argsort(-scores, kind="stable")[:count]
        return [pool[index] for index in nearest if np.isfinite(scores[index])]

    return propose


def read_problems(path: str | Path, limit: int | None = None) -> list[Problem]:
    """Read the problems of a JSON Lines file, or the first `limit` of them.

    A line is `{"context": [...], "candidates": [...], "true", "goal", "goal_distance"}`. An
    utterance is a string or `{"speaker", "text"}`. Where speakers are not given, they alternate,
    and the goal's follows from its distance.

    Raises:
        DataError: The file cannot be read, or does not hold such problems, or holds none.
    """
    lines = islice(read_jsonl(path), limit)
    problems = [_Record(record, str(path), number).problem() for number, record in lines]
    if not problems:
        raise DataError("no problem in it", str(path))
    return problems


def write_problems(problems: Iterable[Problem], path: str | Path) -> None:
    """Write problems as `read_problems` reads them."""
    with Path(path).open("w", encoding="utf-8") as file:
        for problem in problems:
            file.write(json.dumps(asdict(problem), ensure_ascii=False) + "\n")


@dataclass(frozen=True, slots=True)
class _Record:
    fields: dict[str, Any]
    file: str
    line: int

    def problem(self) -> Problem:
        context = self._context()
        distance = self._distance()
        true = self._utterance("true", self._get("true"), _next_speaker(context))
        goal_speaker = context[-1].speaker if distance % 2 else true.speaker
        goal = self._utterance("goal", self._get("goal"), goal_speaker)
        candidates = [
            self._text(f"candidates[{place}]", item)
            for place, item in enumerate(self._list("candidates"))
            if not (isinstance(item, str) and not item.strip())  # as language models sample them
        ]
        others = tuple(text for text in candidates if text != true.text)
        return Problem(context, others, true, goal, distance)

    def _context(self) -> tuple[Utterance, ...]:
        items = enumerate(self._list("context"))
        return tuple(self._utterance(f"context[{n}]", item, "AB"[n % 2]) for n, item in items)

    def _distance(self) -> int:
        value = self._get("goal_distance")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._error("goal_distance", "expected a whole number from 1")
        return value

    def _list(self, field: str) -> list[Any]:
        value = self._get(field)
        if not isinstance(value, list) or not value:
            raise self._error(field, "expected a list that is not empty")
        return value

    def _utterance(self, field: str, value: object, speaker: str) -> Utterance:
        if isinstance(value, dict):
            named = self._text(f"{field}.speaker", value.get("speaker"))
            return Utterance(named, self._text(f"{field}.text", value.get("text")))
        return Utterance(speaker, self._text(field, value))

    def _text(self, field: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self._error(field, "expected a text that is not empty")
        return " ".join(value.split())

    def _get(self, field: str) -> object:
        if field not in self.fields:
            raise self._error(field, "missing")
        return self.fields[field]

    def _error(self, field: str, what: str) -> DataError:
        return DataError(what, self.file, self.line, field)


def _problems_of(
    dialogue: Dialogue, length: int, distances: Iterable[int], propose: Propose
) -> list[Problem]:
    said = dialogue.utterances
    reached = [distance for distance in distances if len(said) > length + distance]
    if not reached:
        return []
    true = said[length]
    candidates = tuple(text for text in propose(dialogue, length) if text != true.text)
    return [Problem(said[:length], candidates, true, said[length + d], d) for d in reached]


def _query_keys(dialogue: Dialogue, length: int) -> list[Key]:
    said = dialogue.utterances
    return context_keys(said[:length], said[length].speaker, Role.SECOND)


def _next_speaker(context: Sequence[Utterance]) -> str:
    """Return who last spoke before the last speaker, or a name for someone new."""
    last = context[-1].speaker
    others = (said.speaker for said in reversed(context) if said.speaker != last)
    return next(others, "A" if last == "B" else "B")
