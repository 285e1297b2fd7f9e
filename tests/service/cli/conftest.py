"""`turnwise pool`, run in the process of the test."""

from collections.abc import Callable

import pytest

from tests.support.service import Ended, Live, Turnwise

Command = Callable[..., str]
"""Runs a command with some words; returns what it says."""


@pytest.fixture
def pool_command(
    turnwise: Turnwise, monkeypatch: pytest.MonkeyPatch, live: Live, defaults: dict[str, object]
) -> Turnwise:
    """Run `turnwise pool` in the test's namespace."""
    for name, value in (defaults | {"redis_url": live.redis_url}).items():
        monkeypatch.setenv(f"TURNWISE_{name.upper()}", str(value))

    def run(word: str, *words: object) -> Ended:
        where = ["--namespace", live.namespace] if word in {"snapshot", "restore", "import"} else []
        return turnwise("pool", word, *where, *words)

    return run


@pytest.fixture
def command(pool_command: Turnwise) -> Command:
    """Run `turnwise pool` with words that it takes; return what it says."""

    def run(*words: object) -> str:
        ended = pool_command(*words)
        assert not ended.status, ended.err
        return ended.out

    return run


@pytest.fixture
def refused(pool_command: Turnwise) -> Command:
    """Run `turnwise pool` with words that it rejects; return the one line that it says."""

    def run(*words: object) -> str:
        ended = pool_command(*words)
        assert ended.status == 2
        *place, line = ended.err.splitlines()
        assert len(place) <= 1
        assert all(", namespace " in each for each in place)  # whose pools the command is about
        return line

    return run
