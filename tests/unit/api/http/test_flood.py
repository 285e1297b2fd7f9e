import asyncio
import logging
from time import perf_counter

import httpx
import pytest

from tests.support.waiting import until
from tests.unit.api.access.test_access import holder, post_turn
from tests.unit.api.conftest import Connect, api_key
from turnwise.service.api.access.keys import Caller
from turnwise.service.api.http import flood
from turnwise.service.api.http.flood import KEYLESS, Flood, Pace

pytestmark = pytest.mark.anyio

KEYS = (api_key("one", "select"),)
PACE = Pace(2, 0.5)


def keyless(address: str = "192.0.2.1") -> dict[str, object]:
    return {"type": "http", "state": {}, "client": (address, 40_000)}


def known_caller(key: str = "one") -> dict[str, object]:
    caller = Caller(key, frozenset())
    return {"type": "http", "state": {"caller": caller, "namespace": "n"}}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.5]
    monkeypatch.setattr(flood, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("status", [401, 403, 429])
async def test_refusals_beyond_the_rate_are_a_flood(status: int, clock: list[float]) -> None:
    refused = Flood(refused=PACE)
    assert [refused.choose_pause(known_caller(), status) for _ in range(4)] == [0, 0, 0.5, 0.5]
    assert (
        refused.choose_pause(known_caller("two"), status) == 0
    )  # another key has a rate of its own
    clock[0] += 0.5
    assert [refused.choose_pause(known_caller(), status) for _ in range(2)] == [0, 0.5]


@pytest.mark.usefixtures("clock")
async def test_answers_to_a_caller_are_no_flood_but_those_without_a_key_are() -> None:
    answered = Flood(Pace(1, 0.5), Pace(1, 0.2))
    assert not any(answered.choose_pause(known_caller(), status) for status in (200, 404, 422) * 5)
    assert [answered.choose_pause(keyless(), 200) for _ in range(2)] == [0, 0.2]


@pytest.mark.usefixtures("clock")
async def test_a_line_counts_the_flood_of_each_key_and_address(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flood, "_SECONDS", 0.01)
    counted = Flood(Pace(1000, 0.5), Pace(1000, 0.5))
    caplog.set_level(logging.INFO)
    for _ in range(20):
        counted.choose_pause(known_caller(), 429)
        counted.choose_pause(known_caller("two"), 403)
    for number in range(40):
        counted.choose_pause(keyless(f"192.0.2.{number % 15}"), 404)
    await until(lambda: bool(caplog.records))
    audited = [each.__dict__ for each in caplog.records if each.name == "turnwise.audit"]
    assert [(line["key"], line["namespace"], line["requests"]) for line in audited] == [
        ("one", "n", 10),
        ("two", "n", 10),
    ]
    lines = [each.__dict__ for each in caplog.records if each.name == "turnwise.access"]
    counts = [line["requests"] for line in lines]
    assert (len(counts), sum(counts)) == (11, 30)


@pytest.mark.usefixtures("clock")
async def test_the_answers_to_a_flood_wait_and_others_do_not(
    client_of: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(api_keys=KEYS) as client:
        with caplog.at_level(logging.INFO, "turnwise.access"):
            begin = perf_counter()
            paths = (client.get(f"/none/{number}") for number in range(2 * KEYLESS.rate))
            answers = await asyncio.gather(*paths)
            assert perf_counter() - begin >= KEYLESS.pause
        lines = [vars(each) for each in caplog.records if each.name == "turnwise.access"]
        of_requests = [line for line in lines if "requests" not in line]
        assert len(of_requests) == KEYLESS.rate
        assert {answer.status_code for answer in answers} == {404}
        assert (await post_turn(client, holder("one"))).status_code == 200
        metrics: httpx.Response = await client.get("/metrics")
    assert f'status="404"}} {2 * KEYLESS.rate}.0' in metrics.text
