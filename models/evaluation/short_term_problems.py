"""Problems of short-term planning: their files, and hard negatives as their candidates."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from turnwise.models.data import Dialogue, Record, Utterance, read_records, write_jsonl
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.histories import next_speaker, read_history, read_utterance
from turnwise.models.evaluation.vectors import Key, VectorTable, after_keys, context_keys
from turnwise.models.roles import Role

CANDIDATES = 100

Propose = Callable[[Dialogue, int], Sequence[str]]
"""From a dialogue and a history length to replies that might come next."""

Progress = Callable[[int, int], None]
"""Is told how many contexts of how many have their candidates."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Replies to a context, of which one was said, and an utterance that came some turns later.

    Attributes:
        context: The history, oldest first.
        candidates: Texts that the speaker of `true` might say, at least one; the true one is not
            among them.
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
    progress: Progress = lambda *_: None,
) -> list[Problem]:
    """Make a problem for each history length and goal distance that a dialogue is long enough for.

    Where nothing but the true one is proposed, there is no problem. A language model takes many
    seconds a context; `progress` is told after each.

    Raises:
        TurnwiseError: There is no problem at all.
    """
    dialogues = list(dialogues)
    asked = [
        (dialogue, length)
        for length in lengths
        for dialogue in dialogues
        if len(dialogue.utterances) > length + min(distances)
    ]
    problems: list[Problem] = []
    for done, (dialogue, length) in enumerate(asked, start=1):
        problems += _problems_of(dialogue, length, distances, propose)
        progress(done, len(asked))
    if not problems:
        raise TurnwiseError(
            "no dialogue is long enough for these histories and goal distances, or none has "
            "a candidate besides the true one"
        )
    return problems


def retrieved_replies(
    encoder: UtteranceEncoder,
    dialogues: Iterable[Dialogue],
    lengths: Iterable[int],
    count: int = CANDIDATES,
) -> Propose:
    """Propose hard negatives: the utterances of other dialogues that fit a context best.

    The fit is the dot product with the sum of the context's vectors: CCL's own, and of a triple
    encoder the bi-encoder's Σ b2_i, not the mixtures of C3L eq. 3. Every candidate is a plausible
    reply, so that only the goal tells them apart. What is said anywhere in the context's own
    dialogue is left out, the true one with it.
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
    problems = [_problem(record) for record in islice(read_records(path), limit)]
    if not problems:
        raise DataError("no problem in it", str(path))
    return problems


def write_problems(problems: Iterable[Problem], path: str | Path) -> None:
    """Write problems as `read_problems` reads them."""
    write_jsonl(path, map(asdict, problems))


def placed_texts(problems: Iterable[Problem], file: str) -> Iterator[tuple[str, str]]:
    """Yield all texts of a file's problems with the problem and the field where they stand."""
    for number, problem in enumerate(problems, start=1):
        fields = {
            "context": [said.text for said in problem.context],
            "true": [problem.true.text],
            "goal": [problem.goal.text],
            "candidates": problem.candidates,
        }
        for field, texts in fields.items():
            yield from ((text, f'{file}, problem {number}, field "{field}"') for text in texts)


def _problem(record: Record) -> Problem:
    context = read_history(record, "context")
    distance = _distance(record)
    true = read_utterance(record, "true", next_speaker(context))
    goal_speaker = context[-1].speaker if distance % 2 else true.speaker
    goal = read_utterance(record, "goal", goal_speaker)
    candidates = [
        record.as_text(f"candidates[{place}]", item)
        for place, item in enumerate(record.items("candidates"))
        if not (isinstance(item, str) and not item.strip())  # as language models sample them
    ]
    others = tuple(text for text in candidates if text != true.text)
    if not others:  # the true one would be the first of one, whatever the system
        raise record.error("candidates", "none but the true one")
    return Problem(context, others, true, goal, distance)


def _distance(record: Record) -> int:
    value = record.get("goal_distance")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise record.error("goal_distance", "expected a whole number from 1")
    return value


def _problems_of(
    dialogue: Dialogue, length: int, distances: Iterable[int], propose: Propose
) -> list[Problem]:
    said = dialogue.utterances
    reached = [distance for distance in distances if len(said) > length + distance]
    true = said[length]
    candidates = tuple(text for text in propose(dialogue, length) if text != true.text)
    if not candidates:
        return []
    return [Problem(said[:length], candidates, true, said[length + d], d) for d in reached]


def _query_keys(dialogue: Dialogue, length: int) -> list[Key]:
    said = dialogue.utterances
    return context_keys(said[:length], said[length].speaker, Role.SECOND)
