import asyncio
import resource
import signal
import socket
import time

import pytest
import uvloop
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from tests.support.redis_server import RedisServer, free_port
from tests.support.waiting import until
from turnwise.service.api.services import once_a_second
from turnwise.service.errors import StateUnavailable, Unavailable
from turnwise.service.observe.descriptors import descriptors_left
from turnwise.service.observe.metrics import Metrics, Result
from turnwise.service.redis.connection import WriteCheck, connect, read_clock, redis_errors
from turnwise.service.settings import SettingsError

pytestmark = pytest.mark.anyio

SET = "return redis.call('SET', KEYS[1], ARGV[1])"


def counted(metrics: Metrics, result: Result) -> float:
    labels = {"operation": "session_write", "result": result}
    value = metrics.registry.get_sample_value("turnwise_redis_operations_total", labels)
    assert value is not None
    return value


async def fails(client: Redis, *command: str) -> None:
    """The command raises an error of the service, and is counted."""
    metrics = Metrics()
    with pytest.raises(StateUnavailable), redis_errors(metrics, "session_write"):
        await client.execute_command(*command)  # type: ignore[no-untyped-call]
    assert counted(metrics, "unavailable") == 1
    assert counted(metrics, "ok") == 0


async def test_an_operation_is_counted_by_its_result(redis: Redis) -> None:
    metrics = Metrics()
    with redis_errors(metrics, "session_write"):
        await redis.ping()
    with redis_errors(metrics, "session_write") as outcome:
        outcome.result = "replayed"
    await redis.set("text", "no list")
    with pytest.raises(ResponseError, match="WRONGTYPE"), redis_errors(metrics, "session_write"):
        await redis.execute_command("LLEN", "text")  # type: ignore[no-untyped-call]
    with pytest.raises(asyncio.CancelledError), redis_errors(metrics, "session_write"):
        raise asyncio.CancelledError
    assert counted(metrics, "ok") == counted(metrics, "replayed") == 1
    assert counted(metrics, "failed") == counted(metrics, "cancelled") == 1


async def test_a_shortage_of_file_descriptors_is_not_blamed_on_redis(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    await redis.ping()  # the client reads files when it makes its first connection
    first, *others = [redis.connection_pool.make_connection() for _ in range(3)]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, most[1]))
    try:
        ready = descriptors_left()
        for connection in (first, *others):
            with pytest.raises(Unavailable) as caught, redis_errors(metrics, "session_write"):
                await connection.connect()
            assert (caught.value.slug, "file descriptors" in caught.value.detail) == (
                "unavailable",
                True,
            )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert not ready
    assert descriptors_left()
    (line,) = [line for line in caplog.messages if "no file descriptors are left" in line]
    assert line.endswith("(errno 24)")


async def test_a_connection_that_was_closed_while_idle_is_made_anew() -> None:
    port = str(free_port())
    server = RedisServer("--port", port, "--bind", "127.0.0.1")
    try:
        for url in (server.url, f"redis://127.0.0.1:{port}"):
            async with connect(url, cluster=False, timeout=5.0) as client:
                await asyncio.gather(*(client.ping() for _ in range(10)))
                server.command("CLIENT", "KILL", "TYPE", "normal")  # as `timeout` does, or a proxy
                await until(lambda: server.command("INFO", "clients")["connected_clients"] == 1)
                await asyncio.sleep(0)
                assert all(await asyncio.gather(*(client.ping() for _ in range(10))))
    finally:
        server.remove()


def test_a_connection_that_closes_as_it_is_used_is_unavailable(redis_url: str) -> None:
    async def use_one_that_closes() -> None:
        async with connect(redis_url, cluster=False, timeout=5.0) as client:
            connection = await client.connection_pool.get_connection()
            connection._writer.transport.abort()
            await asyncio.sleep(0)
            with pytest.raises(StateUnavailable), redis_errors(metrics, "session_write"):
                await connection.send_command("PING")
            with pytest.raises(RuntimeError, match="ours"), redis_errors(metrics, "session_write"):
                raise RuntimeError("ours")

    metrics = Metrics()
    uvloop.run(use_one_that_closes())  # the loop of the service
    assert (counted(metrics, "unavailable"), counted(metrics, "failed")) == (1, 1)


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize(
    "url",
    [
        "redis://:se/cret@host",
        "redis://[se",
        "redis://host:99999",
        "redis://host:cret",
        "redis://host/cret",
        "redis://host?db=cret",
        "redis://host?cret=1",
        "rediss://host?ssl_cert_reqs=cret",
        "unix:///socket?cret=1",
        "redis+sentinel://host:cret/shop",
        "redis+sentinel://host/shop?sentinel_cret=1",
    ],
)
async def test_a_url_that_cannot_be_read_is_refused_and_not_quoted(
    url: str, *, cluster: bool
) -> None:
    with pytest.raises(SettingsError, match=r"^TURNWISE_REDIS_URL") as refused:
        connect(url, cluster=cluster, timeout=1.0)
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:se%2Fcret@host:1/2",
        "rediss://host/",
        "redis://host?health_check_interval=1",
        "rediss://host?ssl_cert_reqs=none",
        "redis+sentinel://a,b/shop?db=2&sentinel_username=me",
        "unix:///socket?db=1",
    ],
)
async def test_a_url_that_can_be_read_is_taken(url: str) -> None:
    await connect(url, cluster=False, timeout=1.0).aclose()


async def test_a_silent_server_is_unavailable_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        async with connect(url, cluster=False, timeout=0.1) as client:
            await fails(client, "PING")


async def test_a_replica_without_its_master_refuses_to_read(redis_server: RedisServer) -> None:
    redis_server.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    redis_server.command("REPLICAOF", "127.0.0.1", "1")
    async with connect(redis_server.url, cluster=False, timeout=5.0) as client:
        await fails(client, "GET", "key")


async def test_a_server_that_refuses_its_user_is_unavailable(redis_server: RedisServer) -> None:
    redis_server.command("ACL", "SETUSER", "app", "on", ">pw", "~app:*", "+@all")
    url = redis_server.url.replace("://", "://app:pw@")
    async with connect(url, cluster=False, timeout=5.0) as client:
        await fails(client, "SET", "key", "value")
        await fails(client, "EVAL", SET, "1", "key", "value")
        await fails(client, "SELECT", "99")  # as a URL that ends in /99 does


@pytest.mark.parametrize(
    "message",
    [
        "ACL failure in script: User app has no permissions to run 'get'",
        "The user executing the script can't run this command or subcommand script: 1, on @user",
        "The user executing the script can't access at least one of the keys mentioned",
    ],
)
async def test_a_script_that_redis_7_refuses_its_user_is_unavailable(message: str) -> None:
    with pytest.raises(StateUnavailable), redis_errors(Metrics(), "session_write"):
        raise ResponseError(message)


async def test_a_pipeline_that_a_server_rejects_is_unavailable(redis_server: RedisServer) -> None:
    redis_server.command("CONFIG", "SET", "min-replicas-to-write", "1")
    async with connect(redis_server.url, cluster=False, timeout=5.0) as client:
        await fails_in_a_pipeline(client)


async def test_a_pipeline_behind_a_slow_script_is_unavailable(redis_server: RedisServer) -> None:
    redis_server.command("CONFIG", "SET", "busy-reply-threshold", "10")
    async with connect(redis_server.url, cluster=False, timeout=30.0) as client:
        endless = asyncio.create_task(client.eval("while true do end", 0))
        while "BUSY" not in (said := await answer_to_ping(client)):
            assert said == "PONG"
        await fails_in_a_pipeline(client)
        await client.script_kill()
        with pytest.raises(ResponseError, match="killed"):
            await endless


async def answer_to_ping(client: Redis) -> str:
    try:
        await client.ping()
    except ResponseError as error:
        return str(error)
    return "PONG"


async def fails_in_a_pipeline(client: Redis) -> None:
    pipeline = client.pipeline(transaction=False)
    pipeline.set("key", "value")
    with pytest.raises(StateUnavailable), redis_errors(Metrics(), "session_write"):
        await pipeline.execute()


async def test_a_wrong_password_is_named(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = redis_server.url.replace("://", "://app:secret@")
    async with connect(url, cluster=False, timeout=5.0) as client:
        words = "rejects the user or the password"
        with pytest.raises(StateUnavailable, match=words), redis_errors(Metrics(), "session_write"):
            await client.ping()
        assert not await WriteCheck([client], Metrics())()
    (line,) = caplog.messages
    assert "invalid username-password pair" in line
    assert "secret" not in line


async def test_a_server_that_loads_its_data_is_unavailable(redis_server: RedisServer) -> None:
    redis_server.command("DEBUG", "POPULATE", "3000", "key", "10000")  # answers every 2 MB
    redis_server.command("CONFIG", "SET", "rdbcompression", "no")
    redis_server.command("CONFIG", "SET", "key-load-delay", "1000")  # microseconds a key
    async with connect(redis_server.url, cluster=False, timeout=30.0) as client:
        reload = asyncio.create_task(client.execute_command("DEBUG", "RELOAD"))  # type: ignore[no-untyped-call]

        async def loads() -> object:
            return (await client.info("persistence"))["loading"]

        await until(loads)
        await fails(client, "GET", "key")
        redis_server.kill()
        with pytest.raises(Exception, match="closed"):
            await reload


async def test_an_operation_that_is_cancelled_ends_at_any_step_of_it(redis: Redis) -> None:
    async def operation() -> None:
        with redis_errors(Metrics(), "session_write"):
            await redis.set("key", "value")
            await redis.get("key")

    ended = []
    for steps in range(40):
        task = asyncio.create_task(operation())
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.cancel():
            await asyncio.wait([task])
            ended.append(task.cancelled())
    assert all(ended)
    assert len(ended) > 5


async def test_a_cluster_that_was_killed_or_has_no_slots_is_unavailable_and_its_return_is_seen(
    redis_cluster: RedisServer,
) -> None:
    async with connect(redis_cluster.url, cluster=True, timeout=5.0) as client:
        await client.set("key", "value")
        redis_cluster.kill()
        await fails(client, "GET", "key")
        redis_cluster.start()
        redis_cluster.wait_for("CLUSTER INFO", b"cluster_state:ok")
        assert await client.get("key") is None
        redis_cluster.command("CLUSTER", "FLUSHSLOTS")
        await fails(client, "SET", "key", "value")


@pytest.mark.parametrize("cluster", [False, True])
async def test_the_clock_is_read_in_microseconds(
    redis_url: str, cluster_url: str, *, cluster: bool
) -> None:
    async with connect(cluster_url if cluster else redis_url, cluster=cluster, timeout=5) as client:
        begin = time.time_ns() // 1000
        assert begin <= await read_clock(client) <= time.time_ns() // 1000


async def test_redis_is_probed_at_most_once_a_second(redis: Redis) -> None:
    check = once_a_second(WriteCheck([redis], Metrics()))
    await redis.config_resetstat()
    begin = asyncio.get_running_loop().time()
    assert all(await asyncio.gather(*(check() for _ in range(20))))
    assert await check()
    seconds = asyncio.get_running_loop().time() - begin
    assert 1 <= (await redis.info("commandstats"))["cmdstat_set"]["calls"] <= 1 + seconds


async def test_an_outage_is_logged_when_it_begins_and_when_it_ends(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "turnwise.redis")
    async with connect(redis_server.url, cluster=False, timeout=5.0) as client:
        check = WriteCheck([client], Metrics())
        redis_server.kill()
        assert [await check() for _ in range(3)] == [False] * 3
        redis_server.start()
        assert await check()
    failed, repaired = caplog.messages
    assert failed.startswith("Redis does not answer or rejects writes: ConnectionError: ")
    assert repaired == "Redis accepts writes again"


async def test_a_redis_that_hangs_fails_its_probe_for_all_who_ask(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.service.redis.connection.CHECK_TIMEOUT", 0.1)
    async with connect(redis_server.url, cluster=False, timeout=60.0) as client:
        check = once_a_second(WriteCheck([client], Metrics()))
        redis_server.signal(signal.SIGSTOP)
        try:
            assert await asyncio.gather(*(check() for _ in range(3))) == [False] * 3
        finally:
            redis_server.signal(signal.SIGCONT)
