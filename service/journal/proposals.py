"""Proposes examples for candidates: utterances after which people often chose them.

A turn has a choice if the responder's next turn names an offered candidate, or else if feedback
says that one was chosen or edited. A person should read the proposals before a pool takes them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from turnwise.models.data import Utterance, merge_runs
from turnwise.models.texts import fold_text
from turnwise.service.journal.export import JournalTurn, find_choice, read_conversations
from turnwise.service.wire.pools import MOST_EXAMPLES


class Choice(NamedTuple):
    """A candidate that was chosen, and the utterance before."""

    candidate: str
    text: str
    """The text of the candidate, as the journal has it."""
    said: str


def propose_examples(
    folders: Iterable[Path], namespace: str, pool: str, min_times: int
) -> Iterator[dict[str, Any]]:
    """Yield `{"id", "text", "examples"}` for candidates of a pool, most frequent examples first.

    An utterance is proposed if a candidate was chosen after it at least `min_times` times, and no
    other candidate more often. Utterances are compared by `fold_text`.

    Raises:
        DataError: A folder holds no journal.
        OSError: A file cannot be read.
    """
    times: defaultdict[str, Counter[str]] = defaultdict(Counter)
    said: dict[str, str] = {}
    texts: dict[str, str] = {}
    for conversation in read_conversations(folders):
        if conversation.namespace != namespace:
            continue
        for choice in _find_choices(conversation.turns, pool):
            folded = fold_text(choice.said)
            times[folded][choice.candidate] += 1
            said[folded] = choice.said
            texts[choice.candidate] = choice.text
    proposed: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for folded, counter in times.items():
        most = max(counter.values())
        for candidate, count in counter.items():
            if count == most >= min_times:
                proposed[candidate][said[folded]] = count
    for candidate, examples in sorted(proposed.items()):
        frequent = examples.most_common(MOST_EXAMPLES)
        yield {
            "id": candidate,
            "text": texts[candidate],
            "examples": [text for text, _ in frequent],
        }


def _find_choices(turns: Sequence[JournalTurn], pool: str) -> Iterator[Choice]:
    before: list[Utterance] = []
    for turn, after in zip(turns, [*turns[1:], None], strict=True):
        line = turn.line
        before.append(Utterance(line.speaker, line.text))
        if line.pool is None or line.pool.name != pool or line.speaker == line.responder:
            continue
        texts = {each.id: each.text for each in line.offered}
        chosen = find_choice(turn, after)
        if chosen in texts:
            yield Choice(chosen, texts[chosen], merge_runs(before)[-1].text)
