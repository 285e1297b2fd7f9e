"""Messages that are longer than the model reads: both ends count, and the answer says so."""

import pytest

from tests.support.messages import QUESTIONS, scores, wrong
from tests.support.service import Live, with_and_without_heads

STORY = "Well, this is a long story, and it has nothing to do with what I want. " * 40
LONGEST = 32_000


@with_and_without_heads
@pytest.mark.parametrize("message", ["{question} {story}", "{story} {question}"])
def test_what_is_asked_at_either_end_of_a_long_message_counts(live: Live, message: str) -> None:
    answers = [
        live.turn(f"s{index}", "user", message.format(question=question, story=STORY))
        for index, question in enumerate(QUESTIONS[:2])
    ]
    assert all(answer["truncated"] for answer in answers)
    first, second = (scores(answer) for answer in answers)
    assert first != pytest.approx(second, abs=1e-4)


def test_a_message_of_32_000_characters_is_taken_and_kept_whole(live: Live) -> None:
    counted = live.increase("turnwise_truncated_turns_total", namespace=live.namespace)
    message = (STORY * 20)[: LONGEST - 1] + "?"
    answer = live.turn("s", "user", message)
    assert answer["truncated"] is True
    assert answer["candidates"]
    assert live.get("/sessions/s")["transcript"][0]["text"] == message
    assert live.turn("t", "user", message, commit=False)["truncated"] is True
    assert counted() == 1
    said = [{"speaker": "user", "text": message}]
    assert live.post("/rank", context=said, candidates=["Yes", "No"])["ranking"]
    assert live.post("/pools/default/search", text=message)["candidates"]
    assert wrong(live.try_turn(f"{message}!")) == [["body", "text"]]
