"""What a turn does not offer: replies that were said, excluded ones, and copies of each other."""

from typing import Any

import numpy as np
import pytest

from tests.support.messages import REPLIES, posts, scores, wrong
from tests.support.service import Live
from turnwise.models.roles import Role
from turnwise.service.selection import retrieval

ALL = len(REPLIES)
SAID = REPLIES[4]


def offered(live: Live, session: str, **options: object) -> list[str]:
    answer = live.turn(session, "user", "Thanks, bye.", **{"top_k": ALL, **options})
    return list(scores(answer))


def after_reply(live: Live, session: str) -> None:
    live.say(session, [("user", "Hello"), ("bot", f"  {SAID} "), ("bot", "Anything else?")])


@pytest.mark.parametrize("repeat", ["last", False])
def test_a_reply_is_not_offered_again_unless_it_may_be(live: Live, repeat: str | bool) -> None:
    after_reply(live, "s")
    assert sorted(offered(live, "s", repeat=repeat)) == sorted({*REPLIES} - {SAID})
    assert sorted(offered(live, "s", repeat=True)) == sorted(REPLIES)


@pytest.mark.parametrize("options", [{"repeat": False}, {"repeat": "near", "diversity": 0.8}])
def test_a_ranking_of_a_pool_leaves_out_what_a_turn_does(
    live: Live, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    live.say("s", [("user", "Hello"), ("bot", SAID)])
    vectors = live.encoder.encode([*REPLIES, SAID], Role.AFTER)
    cosines = np.sort(vectors[:ALL] @ vectors[ALL])
    monkeypatch.setattr(retrieval, "NEAR", float(cosines[-3:-1].mean()))
    offers = offered(live, "s", top_k=3, **options)
    asked = {"session_id": "s", "pool": "default", "top_k": 3}
    assert [one["text"] for one in live.post("/rank", **asked, **options)["ranking"]] == offers
    plain = live.post("/rank", **asked | {"top_k": ALL})["ranking"]
    assert sorted(one["text"] for one in plain) == sorted(REPLIES)


def test_a_diverse_ranking_leaves_out_what_is_avoided(live: Live) -> None:
    context = posts([("user", "Hello")])
    avoid = [{"text": SAID, "threshold": 0.0}]
    asked = {"context": context, "pool": "default", "diversity": 1.0, "avoid": avoid}
    reach = [one["reachability"] for one in live.post("/rank", **asked)["rejected"]]
    avoid[0]["threshold"] = float(np.median(reach))
    answer = live.post("/rank", **asked)
    assert 0 < len(answer["ranking"]) < ALL
    both = [one["index"] for one in answer["ranking"] + answer["rejected"]]
    assert sorted(both) == [*range(ALL)]
    avoid[0]["threshold"] = -9
    assert live.post("/rank", **asked)["ranking"] == []


@pytest.mark.parametrize("said", [[], [("bot", SAID)]])
def test_a_pool_of_the_pairwise_model_cannot_tell_what_is_near(
    by_pairs: Live, said: list[tuple[str, str]]
) -> None:
    for speaker, text in said:
        by_pairs.turn("s", speaker, text)
    body = {"speaker": "user", "text": "Hello", "pool": "pairs", "repeat": "near"}
    ranking = {"context": posts([("user", "Hello")]), "pool": "pairs", "repeat": "near"}
    for path, asked in (("/sessions/s/turn", body), ("/rank", ranking)):
        assert wrong(by_pairs.http.post(path, json=asked)) == [["body", "repeat"]]
    body["repeat"] = False
    assert len(by_pairs.post("/sessions/s/turn", **body, diversity=0.5)["candidates"]) == 5
