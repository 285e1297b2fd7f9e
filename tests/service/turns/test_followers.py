"""Candidates that follow the last reply, as their metadata say."""

from typing import Any

import pytest

from tests.support.messages import REPLIES
from tests.support.service import Live

Candidates = list[dict[str, Any]]


def upload(live: Live, pool: str, after: object) -> None:
    """Make a pool whose last reply follows its first one."""
    candidates: Candidates = [
        {"id": f"r{index}", "text": text} for index, text in enumerate(REPLIES)
    ]
    candidates[-1]["metadata"] = {"after": after}
    live.make_pool(pool, candidates)


def answer(live: Live, session: str, reply: dict[str, str], pool: str = "form") -> Candidates:
    """Say one of the replies, then something short; return all candidates by their scores."""
    live.post(f"/sessions/{session}/turn", speaker="user", text="My parcel is late.")
    live.post(f"/sessions/{session}/turn", speaker="bot", **reply)
    answered = live.turn(session, "user", "half past ten", pool=pool, top_k=8, explain=True)
    found: Candidates = answered["candidates"]
    return found


@pytest.mark.parametrize("after", ["r0", ["nowhere", "r0"]])
def test_a_follower_scores_higher_and_says_what_it_follows(live: Live, after: object) -> None:
    upload(live, "form", after)
    by_text = answer(live, "text", {"text": f"  {REPLIES[0].upper()} "})
    named = answer(live, "named", {"candidate": "r0", "pool": "form"})
    other = {each["id"]: each for each in answer(live, "other", {"text": "Half past what?"})}
    for found in (by_text, named):
        by_id = {each["id"]: each for each in found}
        assert by_id["r7"]["matched"] == {"after": "r0"}
        assert [each["id"] for each in found if "matched" in each] == ["r7"]
        assert abs(sum(by_id["r7"]["contributions"]) - by_id["r7"]["score"]) < 1e-3
    assert not any("matched" in each for each in other.values())


def test_a_changed_candidate_follows_another_reply(live: Live) -> None:
    upload(live, "form", "r0")
    change = {"metadata": {"after": ["r1"]}}
    live.patch("/pools/form/candidates/r7", change)
    reply = {"candidate": "r0", "pool": "form"}
    assert not any("matched" in each for each in answer(live, "s", reply))
    second = answer(live, "t", {"candidate": "r1", "pool": "form"})
    assert [each["id"] for each in second if "matched" in each] == ["r7"]
