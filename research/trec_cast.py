"""Makes the files of `turnwise evaluate conversational-search` from topics of TREC CAsT.

python research/trec_cast.py 2021_automatic_evaluation_topics_v1.0.json --out build/cast

It reads the topics with automatic rewritings, of 2021 or the flattened ones of 2022. The passages
are those that answer a turn. The first turn of a conversation is no question, for it needs no
context, and a turn that several conversations begin with is a question of the first of them.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from turnwise.models.text_files import write_jsonl


class Turn(NamedTuple):
    """A turn of a topic: what the user says, and the passage that answers it."""

    number: str
    text: str
    rewrite: str
    passage: str

    @classmethod
    def of(cls, fields: dict[str, Any]) -> "Turn":
        """Return the turn of a file: the years name its fields differently."""
        return cls(
            number=str(fields["number"]),
            text=fields.get("raw_utterance") or fields["utterance"],
            rewrite=fields["automatic_rewritten_utterance"],
            passage=(fields.get("passage") or fields.get("response", "")).strip(),
        )


def make_conversation(turns: list[Turn], ids: dict[str, str], asked: set[str]) -> Iterator[Any]:
    """Yield the utterances of a conversation.

    Args:
        turns: Its turns.
        ids: The ids of passages; those of new ones are added.
        asked: The numbers of turns that are questions already, or begin a conversation.
    """
    for turn in turns:
        said = {"speaker": "user", "text": turn.text}
        if not turn.passage:
            yield said
            continue
        id = ids.setdefault(turn.passage, f"p{len(ids)}")
        is_new = turn.number not in asked and turn is not turns[0]
        asked.add(turn.number)
        yield said | ({"passages": [id], "rewrite": turn.rewrite} if is_new else {})
        yield {"speaker": "bot", "text": turn.passage}


def main() -> None:
    """Write `conversations.jsonl` and `passages.jsonl`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topics", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    ids: dict[str, str] = {}
    asked: dict[str, set[str]] = {}
    conversations = [
        {
            "id": str(topic["number"]),
            "utterances": list(
                make_conversation(
                    [Turn.of(turn) for turn in topic["turn"]],
                    ids,
                    asked.setdefault(str(topic["number"]), set()),
                )
            ),
        }
        for topic in json.loads(given.topics.read_text(encoding="utf-8"))
    ]
    given.out.mkdir(parents=True, exist_ok=True)
    write_jsonl(given.out / "conversations.jsonl", conversations)
    write_jsonl(given.out / "passages.jsonl", ({"id": i, "text": text} for text, i in ids.items()))


if __name__ == "__main__":
    main()
