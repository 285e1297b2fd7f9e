import platform
import signal

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.api.conftest import Connect, Limit, Parts, connect, make_app
from tests.unit.api.http.test_problems import check_problem
from turnwise.service.api import services
from turnwise.service.app.server import Server
from turnwise.service.settings import Limits, Settings

pytestmark = pytest.mark.anyio


async def test_alive_while_other_checks_fail(client: httpx.AsyncClient, parts: Parts) -> None:
    parts.ready = parts.healthy = False
    response = await client.get("/livez")
    assert (response.status_code, response.json()) == (200, {"alive": True})


async def test_ready_with_every_check(client: httpx.AsyncClient) -> None:
    response = await client.get("/readyz")
    checks = dict.fromkeys(
        ["model", "pools", "redis", "encoder", "descriptors", "not_draining"], True
    )
    ready = {"ready": True, "checks": checks, "warnings": []}
    assert (response.status_code, response.json()) == (200, ready)
    assert "turnwise_ready 1.0" in (await client.get("/metrics")).text


async def test_probes_may_ask_for_the_head_alone(client: httpx.AsyncClient, parts: Parts) -> None:
    assert [(await client.head(path)).status_code for path in ("/livez", "/readyz")] == [200, 200]
    parts.ready = False
    assert (await client.head("/readyz")).status_code == 503


@pytest.mark.parametrize(
    ("part", "value", "check"),
    [
        ("ready", False, "pools"),
        ("healthy", False, "model"),
        ("stalled", True, "encoder"),
        ("ping", False, "redis"),
    ],
)
async def test_unready_part_is_named(
    client: httpx.AsyncClient, parts: Parts, part: str, value: bool, check: str
) -> None:
    await client.get("/readyz")
    if part in parts.outcomes:
        parts.outcomes[part] = value
    else:
        setattr(parts, part, value)
    problem = check_problem(await client.get("/readyz"), 503)
    assert problem["type"] == "urn:turnwise:problem:not-ready"
    assert [error["loc"] for error in problem["errors"]] == [[check]]
    assert "turnwise_ready 0.0" in (await client.get("/metrics")).text


async def test_a_process_without_file_descriptors_is_not_ready(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "descriptors_left", lambda: False)
    (error,) = check_problem(await client.get("/readyz"), 503)["errors"]
    assert error["loc"] == ["descriptors"]


async def test_from_sigterm_on_it_is_not_ready_and_answers(parts: Parts) -> None:
    app = make_app(parts)
    async with connect(app) as client:
        assert (await client.get("/readyz")).status_code == 200
        Server(app, Settings(), ("/", "")).stop(signal.SIGTERM)
        problem = (await client.get("/readyz")).json()
        turn = await client.post("/sessions/s/turn", json={"speaker": "user", "text": "Hi."})
    assert [error["loc"] for error in problem["errors"]] == [["not_draining"]]
    assert turn.status_code == 200


async def test_metrics_parse_and_count_by_route_template(client: httpx.AsyncClient) -> None:
    await client.get("/sessions/first")
    await client.get("/sessions/second")
    await client.get("/sessions/%0A")
    await client.get("/nowhere")
    await client.request("INVENTED", "/nowhere")
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    counted = {
        (sample.labels["method"], sample.labels["route"], sample.labels["status"])
        for sample in families["turnwise_requests"].samples
        if sample.name.endswith("_total") and sample.value
    }
    assert counted == {
        ("GET", "/sessions/{session_id}", "200"),
        ("GET", "/sessions/{session_id}", "422"),
        ("GET", "other", "404"),
        ("other", "other", "404"),
    }


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics"),
        ("text/html,*/*;q=0.8", "text/plain; version="),
    ],
)
async def test_metrics_come_in_the_format_that_is_asked_for(
    client: httpx.AsyncClient, accept: str, content_type: str
) -> None:
    response = await client.get("/metrics", headers={"accept": accept})
    assert response.headers["content-type"].startswith(content_type)
    assert ("# EOF" in response.text) == ("openmetrics" in content_type)


async def test_series_of_routes_exist_from_the_start(client: httpx.AsyncClient) -> None:
    text = (await client.get("/metrics")).text
    route = 'route="/sessions/{session_id}/turn"'
    assert f'turnwise_requests_total{{method="POST",{route},status="200"}} 0.0' in text
    assert f'turnwise_request_seconds_count{{method="POST",{route}}} 0.0' in text


async def test_version_returns_the_model_and_every_limit(client_of: Connect, limit: Limit) -> None:
    limit(max_top_k=7)
    async with client_of(max_turns=5) as client:
        body = (await client.get("/version")).json()
    assert body["python"] == platform.python_version()
    assert body["model"] == {
        "name": "tiny",
        "fingerprint": "f",
        "kind": "triple",
        "dimension": 32,
        "aggregation": "mean",
        "runtime": "torch on cpu",
        "device": "cpu",
        "threads": 2,
    }
    limits = body["limits"]
    assert limits.keys() >= {name for name in vars(Limits) if name.startswith("max_")}
    changed = (limits["max_turns"], limits["max_top_k"], limits["max_text_chars"])
    assert changed == (5, 7, 2000)
