"""Candidates that follow the last reply, as their metadata say."""

from typing import Any

from tests.support.messages import REPLIES
from tests.support.service import Live

Candidates = list[dict[str, Any]]


def answer(live: Live, session: str, reply: dict[str, str]) -> Candidates:
    """Say one of the replies, then something short; return all candidates by their scores."""
    live.post(f"/sessions/{session}/turn", speaker="user", text="My parcel is late.")
    live.post(f"/sessions/{session}/turn", speaker="bot", **reply)
    answered = live.turn(session, "user", "half past ten", pool="form", top_k=8, explain=True)
    found: Candidates = answered["candidates"]
    return found


def test_a_follower_says_what_it_follows(live: Live) -> None:
    candidates: Candidates = [
        {"id": f"r{index}", "text": text} for index, text in enumerate(REPLIES)
    ]
    candidates[-1]["metadata"] = {"after": ["nowhere", "r0"]}
    live.make_pool("form", candidates)
    by_text = answer(live, "text", {"text": f"  {REPLIES[0].upper()} "})
    named = answer(live, "named", {"candidate": "r0", "pool": "form"})
    other = {each["id"]: each for each in answer(live, "other", {"text": "Half past what?"})}
    for found in (by_text, named):
        by_id = {each["id"]: each for each in found}
        assert by_id["r7"]["matched"] == {"after": "r0"}
        assert [each["id"] for each in found if "matched" in each] == ["r7"]
        assert abs(sum(by_id["r7"]["contributions"]) - by_id["r7"]["score"]) < 1e-3
    assert not any("matched" in each for each in other.values())
