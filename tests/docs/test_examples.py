"""The example replies are well formed; `service/turns/test_first_messages.py` asks for them."""

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

REPLIES = Path(__file__).parents[2] / "examples" / "replies.jsonl"
TOPICS = {
    *("hotel", "restaurant", "flight", "train", "taxi", "travel"),
    *("account", "order", "payment", "dialogue", "small_talk"),
}


class Reply(NamedTuple):
    id: str
    text: str
    metadata: dict[str, Any]
    examples: Sequence[str] = ()
    group: str | None = None


@cache
def replies() -> list[Reply]:
    return [Reply(**json.loads(line)) for line in REPLIES.read_text(encoding="utf-8").splitlines()]


def test_ids_are_unique_and_safe_in_a_url() -> None:
    ids = [reply.id for reply in replies()]
    assert len(set(ids)) == len(ids)
    assert [i for i in ids if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}", i)] == []


def test_no_text_stands_twice() -> None:
    texts = [reply.text.casefold() for reply in replies()]
    assert len(set(texts)) == len(texts)


def test_metadata_names_a_topic_and_an_intent() -> None:
    for reply in replies():
        assert set(reply.metadata) - {"after"} == {"intent", "topic"}, reply.id
        assert reply.metadata["topic"] in TOPICS, reply.id
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", reply.metadata["intent"]), reply.id
    assert {reply.metadata["topic"] for reply in replies()} == TOPICS


def test_a_reply_follows_replies_and_groups_of_the_file() -> None:
    names = {reply.id for reply in replies()} | {reply.group for reply in replies()}
    followed = [name for reply in replies() for name in reply.metadata.get("after", ())]
    assert followed
    assert set(followed) <= names
