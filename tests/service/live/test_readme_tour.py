"""The README's tour of the client, against a service that runs."""

import re
from typing import Any

import pytest

from tests.service.live.conftest import Live
from tests.test_readme import README, python_block
from turnwise.service.client import PlanAnswer, Ranked, ScoreMatrix, Selected


def test_the_tour_of_the_client_runs(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    code = python_block("from turnwise import Client").replace(
        "http://127.0.0.1:8000", str(live.http.base_url)
    )
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - what a reader would run
    best, steered, matrix, plan = (names[n] for n in ("best", "steered", "matrix", "plan"))
    assert isinstance(best, Selected)
    assert isinstance(steered, Ranked)
    assert isinstance(matrix, ScoreMatrix)
    assert isinstance(plan, PlanAnswer)
    assert sum(best.contributions or ()) == pytest.approx(best.score, abs=1e-3)
    assert matrix.scores[-1][0] == pytest.approx(best.score, abs=1e-3)
    assert "3 of 3 encoded" in capsys.readouterr().out
    assert live.http.get("/sessions/grace").status_code == 404
    assert live.get("/pools/hotel")["size"] == 3


def test_every_error_that_it_names_is_one_of_the_client() -> None:
    from turnwise.service import client  # noqa: PLC0415

    named = set(re.findall(r"`(\w+Error)`", README))
    assert {"ConflictError", "ProblemError"} <= named
    assert [name for name in named if not hasattr(client, name)] == []
