"""A service whose pools are in a Milvus."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.service.conftest import Command
from tests.support.messages import problem
from tests.support.milvus import MilvusServer
from tests.support.service import Launch, Live
from tests.support.waiting import eventually
from turnwise.service.pools.stores import milvus

REPLIES: list[dict[str, Any]] = [
    {"id": str(n), "text": text, "metadata": {"topic": topic}}
    for n, (text, topic) in enumerate(
        [
            ("Your parcel will come on Monday.", "parcel"),
            ("What is the number of the parcel?", "parcel"),
            ("Breakfast is from seven to ten.", "hotel"),
            ("Yes, there is a quiet room.", "hotel"),
            ("Good morning! How can I help you?", "talk"),
            ("Goodbye!", "talk"),
        ]
    )
]
WITH_EXAMPLES = [
    *REPLIES[:2],
    {**REPLIES[2], "examples": ["When is breakfast?", "Can I eat early?"], "group": "breakfast"},
    {"id": "b", "text": "We serve breakfast from seven.", "group": "breakfast"},
    {**REPLIES[5], "examples": ["Thank you, goodbye"]},
]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"explain": True, "aggregation": "max_sim"},
    {"diversity": 0.5, "top_k": 3},
    {"where": {"topic": {"in": ["parcel", "talk"]}}},
]


@pytest.fixture(scope="module")
def live(share: Launch, milvus_server: MilvusServer) -> Iterator[Live]:
    """A service with the same replies in two pools: `default` in memory, `far` in Milvus."""
    live = share(store_url=milvus_server.url)
    live.app.name = "stores"
    for pool, store in (("default", "local"), ("far", "milvus")):
        made = live.http.put(f"/pools/{pool}", json={"store": store})
        assert (made.status_code, made.json()["store"]) == (200, store), made.text
        uploaded = live.http.put(f"/pools/{pool}/candidates", json=REPLIES)
        assert (uploaded.status_code, uploaded.json()["size"]) == (200, len(REPLIES)), uploaded.text
    eventually(lambda: len(searched(live, "Hello")) == len(REPLIES))
    yield live
    assert live.http.delete("/pools/far").status_code == 204


def searched(live: Live, text: str, pool: str = "far") -> list[str]:
    found = live.http.post(f"/pools/{pool}/search", json={"text": text, "top_k": 10})
    return [candidate["id"] for candidate in found.json()["candidates"]]


def turn(live: Live, session: str, text: str, **options: object) -> httpx.Response:
    return live.http.post(
        f"/sessions/{session}/turn", json={"speaker": "user", "text": text, **options}
    )


def test_answers_do_not_depend_on_the_store(live: Live) -> None:
    for number, options in enumerate(OPTIONS):
        for text in ("Where is my parcel?", "Thank you, goodbye"):
            near, far = (
                turn(live, f"{pool}-{number}", text, pool=pool, **options)
                for pool in ("default", "far")
            )
            assert (near.status_code, far.status_code) == (200, 200), far.text
            ours = near.json()["candidates"]
            theirs = far.json()["candidates"]
            assert [one["id"] for one in ours] == [one["id"] for one in theirs]
            for one, other in zip(ours, theirs, strict=True):
                assert one["score"] == pytest.approx(other["score"], abs=1e-5)
                assert one["metadata"] == other["metadata"]
            assert near.json()["confidence"] == pytest.approx(far.json()["confidence"], abs=1e-3)
    ranking = {
        "context": [{"speaker": "user", "text": "Hello"}],
        "goals": [{"text": "Goodbye!", "speaker": "bot"}],
    }
    near, far = (
        [one["id"] for one in live.http.post("/rank", json=ranking | {"pool": p}).json()["ranking"]]
        for p in ("default", "far")
    )
    assert near == far


def test_examples_and_groups_count_alike_in_every_store(live: Live) -> None:
    for pool, store in (("near", "local"), ("far-examples", "milvus")):
        live.put(f"/pools/{pool}", {"store": store})
        live.put(f"/pools/{pool}/candidates", WITH_EXAMPLES)
    eventually(lambda: len(searched(live, "Hello", "far-examples")) == len(WITH_EXAMPLES))
    for text in ("When is breakfast?", "Can I eat at six?", "Thank you, goodbye"):
        near, far = (
            turn(live, f"examples-{pool}", text, pool=pool).json()["candidates"]
            for pool in ("near", "far-examples")
        )
        assert [one.pop("score") for one in near] == pytest.approx(
            [one.pop("score") for one in far], abs=1e-4
        )
        assert near == far
        assert any("matched" in one for one in near)
    assert live.http.delete("/pools/far-examples").status_code == 204


def test_a_store_that_is_away_costs_no_session(
    live: Live, milvus_server: MilvusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert turn(live, "s", "Where is my parcel?", pool="far").status_code == 200
    monkeypatch.setattr(milvus, "SECONDS", 0.3)
    with milvus_server.halted():
        failed = turn(live, "s", "Are you there?", pool="far")
        assert problem(failed) == (503, "store-unavailable")
        assert failed.headers["retry-after"] == "1"
        assert turn(live, "t", "Hello", pool="default").status_code == 200
        ready = live.http.get("/readyz")
        assert (ready.status_code, ready.json()["errors"][0]["loc"]) == (503, ["store"])
    monkeypatch.undo()
    again = turn(live, "s", "Are you there?", pool="far")
    assert again.status_code == 200, again.text
    said = [one["text"] for one in live.http.get("/sessions/s").json()["transcript"]]
    assert said == ["Where is my parcel?", "Are you there?"]
    eventually(lambda: live.http.get("/readyz").status_code == 200)


@pytest.mark.nightly
def test_a_pool_is_moved_into_the_store_while_a_service_uses_it(
    live: Live,
    milvus_server: MilvusServer,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TURNWISE_STORE_URL", milvus_server.url)
    live.fill([reply["text"] for reply in REPLIES], "near")
    said = command("move", "near", "--namespace", live.namespace, "--to", "milvus")
    assert said == f"pool near: version 2, {len(REPLIES)} candidates, in the store milvus\n"
    eventually(lambda: live.get("/pools/near")["store"] == "milvus")
    assert turn(live, "moved", "Where is my parcel?", pool="near").is_success
    eventually(lambda: len(searched(live, "Hello", "near")) == len(REPLIES))
    assert live.http.delete("/pools/near").status_code == 204
