import asyncio
import logging
from time import perf_counter

import httpx
import pytest

from tests.unit.api.access.test_access import holder, post_turn
from tests.unit.api.conftest import Connect, api_key
from turnwise.service.api.http import flood
from turnwise.service.api.http.flood import PAUSE_SECONDS, RATE, Flood

pytestmark = pytest.mark.anyio

KEYS = (api_key("one", "select"),)


def open_route() -> dict[str, object]:
    return {"type": "http", "state": {}}


def known_caller() -> dict[str, object]:
    return {"type": "http", "state": {"caller": "somebody"}}


@pytest.mark.parametrize("status", [401, 403, 429])
def test_refusals_beyond_the_rate_are_a_flood(
    status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.5
    monkeypatch.setattr(flood, "monotonic", lambda: now)
    refused = Flood(rate=2)
    assert [refused.exceeds(known_caller(), status) for _ in range(4)] == [False, False, True, True]
    now += 1
    with caplog.at_level(logging.WARNING, "turnwise.access"):
        assert not refused.exceeds(known_caller(), status)
    assert caplog.messages == ["2 requests of a flood were not logged in a second"]


def test_answers_to_a_caller_are_no_flood_but_those_without_a_key_are() -> None:
    answered = Flood(rate=1)
    assert not any(answered.exceeds(known_caller(), status) for status in (200, 404, 422) * 5)
    assert [answered.exceeds(open_route(), 200) for _ in range(2)] == [False, True]


async def test_the_answers_to_a_flood_wait_and_others_do_not(
    client_of: Connect, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flood, "monotonic", lambda: 100.5)  # all come within a second
    async with client_of(api_keys=KEYS) as client:
        with caplog.at_level(logging.INFO, "turnwise.access"):
            begin = perf_counter()
            paths = (client.get(f"/none/{number}") for number in range(3 * RATE))
            answers = await asyncio.gather(*paths)
            assert perf_counter() - begin >= PAUSE_SECONDS
            lines = [record for record in caplog.records if record.name == "turnwise.access"]
            assert len(lines) < len(answers)
        assert {answer.status_code for answer in answers} == {404}
        assert (await post_turn(client, holder("one"))).status_code == 200
        metrics: httpx.Response = await client.get("/metrics")
    assert f'status="404"}} {3 * RATE}.0' in metrics.text
