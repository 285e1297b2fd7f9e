"""Examples of short-term planning: their files, and hard negatives as their candidates."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from turnwise.models.data import Dialogue, Record, Utterance, read_records, write_jsonl
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.evaluation.split import (
    Context,
    VectorTable,
    candidate_inputs,
    next_speaker,
    read_context,
    said_at,
)
from turnwise.models.roles import Role, RoleText

CANDIDATES = 100

Propose = Callable[[Dialogue, int], Sequence[str]]
"""From a dialogue and the length of a context to replies that might come next."""


@dataclass(frozen=True, slots=True)
class ShortTermExample:
    """A context, the reply that was said, other candidates, and an utterance of some turns later.

    Attributes:
        context: The utterances before the reply, oldest first.
        candidates: Other texts that the speaker of `true` might say, at least one; `true` is not
            among them.
        true: The reply.
        goal: The utterance that was said `goal_distance` utterances after the reply.
        goal_distance: At least 1; odd where the other of two speakers says the goal.
    """

    context: tuple[Utterance, ...]
    candidates: tuple[str, ...]
    true: Utterance
    goal: Utterance
    goal_distance: int


def make_examples(
    dialogues: Iterable[Dialogue],
    lengths: Iterable[int],
    distances: Sequence[int],
    propose: Propose,
    progress: Callable[[int, int], object] = lambda *_: None,
) -> list[ShortTermExample]:
    """Make an example for each length of a context and goal distance that a dialogue allows.

    A context for which `propose` gives nothing but the true reply has no example.

    Args:
        dialogues: The dialogues.
        lengths: Lengths of contexts.
        distances: Goal distances.
        propose: Gives the candidates.
        progress: Called with (contexts done, contexts in total) after each context: a language
            model takes many seconds for one.

    Raises:
        TurnwiseError: There is no example at all.
    """
    dialogues = list(dialogues)
    asked = [
        (dialogue, length)
        for length in lengths
        for dialogue in dialogues
        if len(dialogue.utterances) > length + min(distances)
    ]
    examples: list[ShortTermExample] = []
    for done, (dialogue, length) in enumerate(asked, start=1):
        examples += _examples_of(dialogue, length, distances, propose)
        progress(done, len(asked))
    if not examples:
        raise TurnwiseError(
            "no dialogue is long enough for these contexts and goal distances, or none has "
            "a candidate besides the true reply"
        )
    return examples


def retrieved_replies(
    encoder: UtteranceEncoder,
    dialogues: Iterable[Dialogue],
    lengths: Iterable[int],
    count: int = CANDIDATES,
) -> Propose:
    """Propose hard negatives: the utterances of other dialogues that score best for a context.

    The score is the dot product with the sum of the context's vectors: CCL's own, and of a triple
    encoder the bi-encoder's Σ b2_i, not the mixtures of C3L eq. 3. Every candidate is a plausible
    reply, so that only the goal distinguishes them. Utterances of the context's own dialogue are
    left out, the true reply with them.
    """
    dialogues = list(dialogues)
    pool = list(dict.fromkeys(said.text for d in dialogues for said in d.utterances))
    place = {text: index for index, text in enumerate(pool)}
    openings = [(d, h) for h in lengths for d in dialogues if len(d.utterances) > h]
    needed = [item for dialogue, h in openings for item in _query_inputs(dialogue, h)]
    after = candidate_inputs(pool)
    table = VectorTable(encoder, [*after, *needed])
    vectors = table[after]

    def propose(dialogue: Dialogue, length: int) -> list[str]:
        scores = vectors @ table[_query_inputs(dialogue, length)].sum(axis=0)
        scores[[place[said.text] for said in dialogue.utterances]] = -np.inf
        nearest = np.argsort(-scores, kind="stable")[:count]
        return [pool[index] for index in nearest if np.isfinite(scores[index])]

    return propose


def read_examples(path: str | Path, limit: int | None = None) -> list[ShortTermExample]:
    """Read the examples of a JSON Lines file, or the first `limit` of them.

    A line is `{"context": [...], "candidates": [...], "true", "goal", "goal_distance"}`. An
    utterance is a string or `{"speaker", "text"}`. Where speakers are not given, they alternate,
    and the goal's follows from its distance.

    Raises:
        DataError: The file cannot be read, or does not hold such examples, or holds none.
    """
    examples = [_example(record) for record in islice(read_records(path), limit)]
    if not examples:
        raise DataError("no example in it", str(path))
    return examples


def write_examples(examples: Iterable[ShortTermExample], path: str | Path) -> None:
    """Write examples as `read_examples` reads them."""
    write_jsonl(path, map(asdict, examples))


def texts_of_examples(examples: Iterable[ShortTermExample], file: str) -> Iterator[tuple[str, str]]:
    """Yield each text of a file's examples, with its example and field."""
    for number, example in enumerate(examples, start=1):
        fields = {
            "context": [said.text for said in example.context],
            "true": [example.true.text],
            "goal": [example.goal.text],
            "candidates": example.candidates,
        }
        for field, texts in fields.items():
            yield from ((text, f'{file}, example {number}, field "{field}"') for text in texts)


def _example(record: Record) -> ShortTermExample:
    context = read_context(record, "context")
    distance = _distance(record)
    true = said_at(record, "true", record.get("true"), next_speaker(context))
    goal_speaker = context[-1].speaker if distance % 2 else true.speaker
    goal = said_at(record, "goal", record.get("goal"), goal_speaker)
    candidates = [
        record.as_text(f"candidates[{place}]", item)
        for place, item in enumerate(record.items("candidates"))
        if not (isinstance(item, str) and not item.strip())  # language models sample empty ones
    ]
    others = tuple(text for text in candidates if text != true.text)
    if not others:  # the true reply would be the first of one, whatever the system
        raise record.error("candidates", "none but the true reply")
    return ShortTermExample(context, others, true, goal, distance)


def _distance(record: Record) -> int:
    value = record.get("goal_distance")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise record.error("goal_distance", "expected a whole number from 1")
    return value


def _examples_of(
    dialogue: Dialogue, length: int, distances: Iterable[int], propose: Propose
) -> list[ShortTermExample]:
    said = dialogue.utterances
    reached = [distance for distance in distances if len(said) > length + distance]
    true = said[length]
    candidates = tuple(text for text in propose(dialogue, length) if text != true.text)
    if not candidates:
        return []
    return [ShortTermExample(said[:length], candidates, true, said[length + d], d) for d in reached]


def _query_inputs(dialogue: Dialogue, length: int) -> list[RoleText]:
    return Context(dialogue.utterances[:length], dialogue.utterances[length]).inputs(Role.SECOND)
