import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.waiting import PATIENCE, until
from tests.unit.api.access.test_access import holder, post_turn
from tests.unit.api.conftest import Connect, Parts, api_key
from turnwise.service.api.access import concurrency as concurrency_module
from turnwise.service.api.access.concurrency import SHARE, ConcurrencyLimit
from turnwise.service.errors import Overloaded
from turnwise.service.observe.metrics import Metrics

pytestmark = pytest.mark.anyio


def limit_to(limit: int, share: int, wait_seconds: float = 5.0) -> ConcurrencyLimit:
    return ConcurrencyLimit(Metrics(), limit=limit, share=share, wait_seconds=wait_seconds)


async def let_others_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_request_waits_until_another_one_ends() -> None:
    concurrency = limit_to(1, 1)
    first = await concurrency.enter("a")
    second = asyncio.create_task(concurrency.enter("a"))
    await let_others_run()
    assert not second.done()
    first.free()
    first.free()  # changes nothing
    third = asyncio.create_task(concurrency.enter("a"))
    await let_others_run()
    assert second.done()
    assert not third.done()
    (await second).free()
    (await third).free()


async def test_a_free_place_goes_to_the_namespace_with_the_fewest_requests() -> None:
    concurrency = limit_to(3, 3)
    places = [await concurrency.enter("many") for _ in range(3)]
    own = [asyncio.create_task(concurrency.enter("many")) for _ in range(2)]
    await let_others_run()
    other = asyncio.create_task(concurrency.enter("few"))
    await let_others_run()
    places[0].free()
    await let_others_run()
    assert other.done()
    assert not any(task.done() for task in own)
    for task in own:
        task.cancel()


async def test_a_namespace_leaves_places_to_others() -> None:
    concurrency = limit_to(3, 2)
    for _ in range(2):
        await concurrency.enter("many")
    third = asyncio.create_task(concurrency.enter("many"))
    await let_others_run()
    assert not third.done()
    await concurrency.enter("few")
    third.cancel()


async def test_a_heavy_request_counts_as_several_of_its_namespace() -> None:
    concurrency = limit_to(6, 4)
    heavy = await concurrency.enter("a", 9)  # the first one is admitted with any weight
    own = [asyncio.create_task(concurrency.enter("a", 2)) for _ in range(3)]
    await concurrency.enter("b")
    await let_others_run()
    assert not any(task.done() for task in own)
    heavy.free()
    await let_others_run()
    assert [task.done() for task in own] == [True, True, False]
    own[2].cancel()


async def test_a_heavy_request_that_leaves_the_line_lets_lighter_ones_pass() -> None:
    concurrency = limit_to(4, 4)
    await concurrency.enter("a", 3)
    heavy = asyncio.create_task(concurrency.enter("a", 2))
    light = asyncio.create_task(concurrency.enter("a"))
    await let_others_run()
    assert not light.done()
    heavy.cancel()
    await let_others_run()
    assert light.done()


async def test_a_request_that_waited_for_too_long_is_refused() -> None:
    concurrency = limit_to(1, 1, wait_seconds=0.01)
    place = await concurrency.enter("a")
    with pytest.raises(Overloaded, match="1 requests are in progress already"):
        await concurrency.enter("a")
    place.free()
    (await concurrency.enter("a")).free()


async def test_a_request_that_would_wait_for_too_long_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(concurrency_module, "monotonic", lambda: now)
    concurrency = limit_to(1, 1, wait_seconds=PATIENCE)
    place = await concurrency.enter("a")
    first = asyncio.create_task(concurrency.enter("a"))
    await let_others_run()
    now = 0.75 * PATIENCE
    place.free()
    place = await first  # the pace is now three quarters of the longest wait
    second = asyncio.create_task(concurrency.enter("a"))
    await let_others_run()
    with pytest.raises(Overloaded):
        await concurrency.enter("a")
    assert not second.done()  # it would be the first to have waited for too long
    place.free()
    (await second).free()


async def test_a_request_that_leaves_the_line_gives_its_place_to_the_next() -> None:
    concurrency = limit_to(1, 1)
    place = await concurrency.enter("a")
    tasks = [asyncio.create_task(concurrency.enter("a")) for _ in range(3)]
    await let_others_run()
    tasks[0].cancel()  # it waits
    await let_others_run()
    place.free()
    tasks[1].cancel()  # its place has just become free
    (await tasks[2]).free()


async def test_a_place_for_a_request_that_has_just_left_goes_to_the_next() -> None:
    concurrency = limit_to(1, 1)
    first = await concurrency.enter("a")
    second, third = (asyncio.create_task(concurrency.enter("a")) for _ in range(2))
    await let_others_run()
    second.cancel()
    first.free()
    await let_others_run()
    assert third.done()


async def test_other_namespaces_are_answered_while_one_fills_its_share(
    client_of: Connect, parts: Parts
) -> None:
    done = asyncio.Event()
    in_progress: list[object] = []

    async def wait(*turn: object) -> None:
        in_progress.append(turn)
        await done.wait()
        raise Overloaded("at last")

    keys = (api_key("one", "select"), api_key("two", "select"))
    async with client_of(api_keys=keys) as client:
        parts.__dict__["turn"] = wait
        posts = [asyncio.create_task(post_turn(client, holder("one"))) for _ in range(SHARE)]
        await until(lambda: len(in_progress) == SHARE)
        del parts.__dict__["turn"]
        assert (await post_turn(client, holder("two"))).status_code == 200
        done.set()
        statuses = {(await post).status_code for post in posts}
    assert statuses == {429}


async def send_parts() -> AsyncIterator[bytes]:
    yield b'{"context": [], "candidates": []}'


@pytest.mark.parametrize("body", [b" " * (1 << 20), send_parts()], ids=["large", "unknown length"])
async def test_a_namespace_has_one_large_body_in_progress(
    client: httpx.AsyncClient, parts: Parts, body: bytes | AsyncIterator[bytes]
) -> None:
    in_progress = asyncio.Event()
    done = asyncio.Event()

    async def wait(*_: object) -> None:
        in_progress.set()
        await done.wait()
        raise Overloaded("at last")

    parts.__dict__["rank"] = wait
    ranked = {"context": [{"speaker": "user", "text": "Hi"}], "candidates": ["Hello"]}
    small = asyncio.create_task(client.post("/rank", json=ranked))
    await in_progress.wait()
    json = {"content-type": "application/json"}
    large = asyncio.create_task(client.post("/rank", content=body, headers=json))
    await asyncio.sleep(0.05)
    assert not large.done()  # it waits for the small one
    done.set()
    assert [(await small).status_code, (await large).status_code] == [429, 422]


async def test_a_place_is_free_when_the_answer_begins(client: httpx.AsyncClient) -> None:
    for _ in range(SHARE + 1):
        assert (await client.post("/rank", content=b"not even JSON")).status_code == 415
        assert (await client.get("/rank")).status_code == 405
