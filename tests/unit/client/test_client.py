import asyncio
import inspect
from typing import get_type_hints

import httpx
import pytest
from pydantic import BaseModel

import turnwise
from turnwise.service import client
from turnwise.service.client import (
    AsyncClient,
    Client,
    ClientError,
    Pool,
    Session,
    UnexpectedAnswerError,
    UnreachableError,
)
from turnwise.service.client.attempts import Attempts
from turnwise.service.client.calls import make_path
from turnwise.service.client.operations import (
    PlanOptions,
    PoolOptions,
    RankOptions,
    ScoresOptions,
    TurnOptions,
)
from turnwise.service.client.uploads import Upload
from turnwise.service.wire.planning import PlanRequest
from turnwise.service.wire.pools import PoolRequest, SearchRequest
from turnwise.service.wire.ranking import RankRequest
from turnwise.service.wire.sessions import ScoresQuery, TurnRequest


@pytest.mark.parametrize(
    ("options", "body", "given"),
    [
        (TurnOptions, TurnRequest, {"speaker", "text"}),
        (RankOptions, RankRequest, {"session_id", "context"}),
        (PlanOptions, PlanRequest, {"session_id", "context", "goals"}),
        (ScoresOptions, ScoresQuery, {"ids"}),
        (PoolOptions, PoolRequest, {"description", "encoder"}),
    ],
)
def test_every_field_of_a_request_is_an_option(
    options: type,
    body: type[BaseModel],
    given: set[str],
) -> None:
    fields = {
        name for name, field in body.model_fields.items() if field.annotation is not type(None)
    }
    assert set(get_type_hints(options)) == fields - given


def test_every_field_of_a_search_is_a_parameter() -> None:
    parameters = set(inspect.signature(Pool.search).parameters)
    assert parameters - {"self"} == set(SearchRequest.model_fields)


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    assert make_path("pools", "a/b?c", "..") == "/pools/a%2Fb%3Fc/%2E%2E"
    assert make_path("sessions", "\ud83d") == "/sessions/%ED%A0%BD"  # the service's to refuse


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """The requests that clients send, to a service without pools."""
    requests: list[httpx.Request] = []

    def send(_: httpx.Client, request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={"pools": []}, request=request)

    monkeypatch.setattr(httpx.Client, "send", send)
    return requests


def test_a_key_and_a_namespace_go_with_every_call(sent: list[httpx.Request]) -> None:
    with Client("http://turnwise", key="k", namespace="other") as client:
        client.pools()
    (request,) = sent
    assert request.headers["Authorization"] == "Bearer k"
    assert request.headers["Turnwise-Namespace"] == "other"
    assert request.url == httpx.URL("http://turnwise/pools")


def test_the_package_lists_what_the_client_exports() -> None:
    assert {*client.__all__} <= {*dir(turnwise)}


def test_a_url_with_a_path_keeps_it(sent: list[httpx.Request]) -> None:
    with Client("http://proxy/turnwise/") as client:
        client.pools()
    assert sent[0].url.path == "/turnwise/pools"


@pytest.mark.parametrize("url", ["127.0.0.1", "http://[::1", ""])
def test_an_invalid_url_is_rejected_at_once(url: str) -> None:
    with pytest.raises(UnreachableError, match="cannot be reached"):
        Client(url).version()


def test_a_url_without_a_scheme_is_told_what_it_lacks() -> None:
    with pytest.raises(UnreachableError, match=r"the URL must begin with http:// or https://$"):
        Client("localhost:8000").version()


@pytest.mark.parametrize(
    ("text", "options", "key"),
    [
        ("Hello.", {"idempotency_key": "ключ-1"}, "k"),
        ("\ud83d", {}, "k"),
        ("Hello.", {}, "schlüssel"),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_an_unsendable_text_is_reported_but_not_quoted(
    kind: type[Client | AsyncClient], text: str, options: TurnOptions, key: str
) -> None:
    def turn() -> None:
        answer = kind("http://127.0.0.1:1", key=key).session("s").turn("user", text, **options)
        if inspect.iscoroutine(answer):
            asyncio.run(answer)

    with pytest.raises(ClientError, match="cannot be sent") as told:
        turn()
    assert not told.value.temporary
    assert told.value.undone
    assert "schl" not in str(told.value)


def test_a_foreign_line_of_progress_is_an_unexpected_answer() -> None:
    upload = Upload("p", ["Hello."], None)
    with pytest.raises(UnexpectedAnswerError):
        upload.read_line("<html>", Attempts(repeatable=True, timeout=1.0, deadline=1.0))


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_session_is_not_deleted_if_the_service_is_unreachable(
    kind: type[Client | AsyncClient],
) -> None:
    session = kind("http://127.0.0.1:1", deadline=0.2).session(forget=True)
    gone = UnreachableError("http://127.0.0.1:1", httpx.ConnectError("refused"))
    if isinstance(session, Session):
        session.__exit__(UnreachableError, gone, None)
    else:
        asyncio.run(session.__aexit__(UnreachableError, gone, None))


def test_candidates_that_could_not_be_sent_again_are_refused() -> None:
    with pytest.raises(TypeError, match="iterator"):
        Upload("shop", (text for text in ["Hello."]), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_service_on_this_machine_is_not_called_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:9")  # needs a package that is missing
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")  # which httpx cannot read
    with (
        Client(f"http://{host}:1", deadline=0.1) as client,
        pytest.raises(UnreachableError) as caught,
    ):
        client.version()
    assert "proxy" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_the_error_of_a_service_behind_a_proxy_names_the_proxy(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"{scheme}://ann:secret@127.0.0.1:1")
    with (
        pytest.raises(UnreachableError) as caught,
        Client("http://turnwise.example", deadline=0.1) as client,
    ):
        client.version()
    line = f"turnwise.example cannot be reached through the proxy {scheme}://127.0.0.1:1: "
    assert line in str(caught.value)
