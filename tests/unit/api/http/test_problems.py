import json
import re
from typing import Any

import httpx
import pytest
from starlette.types import Message

from tests.unit.api.conftest import Parts, api_key, make_app, request_scope
from turnwise.service import errors
from turnwise.service.errors import InvalidRequest, ServiceError

pytestmark = pytest.mark.anyio

TURN = "/sessions/s/turn"
SAID = {"speaker": "user", "text": "x"}
SAMPLES = {"session_id": "s", "name": "p", "candidate_id": "c", "turn": "1"}
BAD_NAMES = {"session_id": "x" * 257, "name": "b@d", "candidate_id": "x" * 129, "turn": "0"}
SCHEMA = make_app(Parts(), api_keys=[api_key("a", "select")]).openapi()
OPERATIONS = [
    (method.upper(), path, operation)
    for path, methods in SCHEMA["paths"].items()
    for method, operation in methods.items()
]
ALL = [(method, path) for method, path, _ in OPERATIONS]
WITH_BODY = [(method, path) for method, path, operation in OPERATIONS if "requestBody" in operation]
WITH_NAME = [(method, path) for method, path in ALL if "{" in path]
KEYED = [(method, path) for method, path, operation in OPERATIONS if "security" in operation]
ERRORS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, ServiceError)
]


def url(path: str, names: dict[str, str] = SAMPLES) -> str:
    return path.format(**names)


def check_problem(response: httpx.Response, *statuses: int) -> dict[str, Any]:
    assert response.status_code in statuses
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["status"] == response.status_code
    assert problem["type"].startswith("urn:turnwise:problem:")
    assert problem["title"]
    assert problem["detail"]
    assert problem["request_id"] == response.headers["x-request-id"]
    check_uncached(response)
    assert set(problem) <= {"type", "title", "status", "detail", "errors", "request_id", "error"}
    assert response.status_code != 422 or problem["errors"]
    return problem


def check_uncached(response: httpx.Response) -> None:
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_no_proxy_keeps_an_answer_and_no_browser_takes_it_for_a_page(
    client: httpx.AsyncClient,
) -> None:
    for path in [*SCHEMA["paths"], "/openapi.json"]:
        response = await client.get(url(path), params={"ids": "c"} if "scores" in path else {})
        if "json" in response.headers["content-type"]:
            check_uncached(response)
    lines = {"Accept": "application/x-ndjson"}
    check_uncached(await client.put("/pools/p/candidates", json=[], headers=lines))


async def test_wrong_method(client: httpx.AsyncClient) -> None:
    for path in [*SCHEMA["paths"], "/docs", "/openapi.json"]:
        response = await client.request("TRACE", url(path))
        check_problem(response, 405)
        allowed = set(response.headers["allow"].split(", "))
        assert allowed >= {method.upper() for method in SCHEMA["paths"].get(path, {"get": None})}


@pytest.mark.parametrize("path", ["/nowhere", "/sessions/", "/docs/x"])
async def test_unknown_path(client: httpx.AsyncClient, path: str) -> None:
    check_problem(await client.get(path), 404)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"text": NaN}',
        b"\xff\xfe\x00",
        b"null",
        b'{"text": "\\ud800"}',
        b"[" * 100_000,
        b"9" * 10_000,
        b"[[]]",
        b'{"": 1}',
    ],
)
async def test_garbage_body(client: httpx.AsyncClient, parts: Parts, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    for method, path in WITH_BODY:
        response = await client.request(method, url(path), content=body, headers=headers)
        check_problem(response, 422)
    assert {call[0] for call in parts.calls} <= {"info"}


async def test_body_that_is_no_json_by_its_type(client: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    for method, path in WITH_BODY:
        response = await client.request(method, url(path), content=b"{}", headers=headers)
        problem = check_problem(response, 415)
        assert "application/json" in problem["detail"]


async def test_bad_names(client: httpx.AsyncClient, parts: Parts) -> None:
    for method, path in WITH_NAME:
        problem = check_problem(await client.request(method, url(path, BAD_NAMES)), 422)
        assert "path" in [error["loc"][0] for error in problem["errors"]]
    assert parts.calls == []


@pytest.mark.parametrize(("key", "status"), [("unknown", 401), ("useless", 403)])
async def test_who_may_not_is_told_so_before_the_body_is_read(
    parts: Parts, key: str, status: int
) -> None:
    app = make_app(parts, api_keys=(api_key("useless"),))
    answers: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the body was read")

    async def send(message: Message) -> None:
        answers.append(message)

    for method, path in KEYED:
        headers = {"authorization": f"Bearer {key}", "content_length": str(1 << 40)}
        scope = request_scope(method, url(path), content_type="application/json", **headers)
        await app(scope, receive, send)
        assert [answer.get("status") for answer in answers] == [status, None], (method, path)
        answers.clear()
    assert parts.calls == []


def test_all_but_the_operations_take_keys() -> None:
    assert set(ALL) - set(KEYED) == {
        ("GET", path) for path in ("/livez", "/readyz", "/metrics", "/version")
    }


def test_without_keys_the_document_asks_for_none() -> None:
    document = make_app(Parts()).openapi()
    assert "securitySchemes" not in document["components"]
    assert '"security"' not in json.dumps(document["paths"])


async def test_every_error_is_answered_with_its_problem(
    client: httpx.AsyncClient, parts: Parts
) -> None:
    for error in set(ERRORS) - {InvalidRequest}:
        parts.outcomes["transcript"] = error("this time", [errors.FieldError(("body", "x"), "bad")])
        problem = check_problem(await client.get("/sessions/s"), error.status)
        assert problem["type"] == f"urn:turnwise:problem:{error.slug}"
        assert (problem["title"], problem["detail"]) == (error.title, "this time")
        assert problem["errors"] == [{"loc": ["body", "x"], "msg": "bad"}]


@pytest.mark.parametrize("place", ["query", "body"])
async def test_fields_that_are_invalid_are_named_by_their_place_in_the_request(
    client: httpx.AsyncClient, parts: Parts, place: str
) -> None:
    fields = [errors.FieldError(("x", 1), "bad"), errors.FieldError((), "worse")]
    for use_case in ("transcript", "plan"):
        parts.outcomes[use_case] = InvalidRequest(fields, " indeed")
    plan = {"goals": [{"text": "One."}, {"text": "Two."}]}
    response = await (
        client.get("/sessions/s") if place == "query" else client.post("/plan", json=plan)
    )
    problem = check_problem(response, 422)
    assert problem["type"].endswith(":invalid-request")
    assert problem["detail"] == f"{place}.x.1: bad (and 1 more) indeed"
    assert [field["loc"] for field in problem["errors"]] == [[place, "x", 1], [place]]


def test_slugs_are_distinct_and_safe() -> None:
    slugs = [error.slug for error in ERRORS]
    assert len(set(slugs)) == len(slugs)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", slug) for slug in slugs)


def test_documented_problems_are_those_of_the_tree() -> None:
    documented: dict[str, int] = {}
    for _, _, operation in OPERATIONS:
        for status, response in operation["responses"].items():
            content = response.get("content", {}).get("application/problem+json")
            if content:
                assert content["schema"] == {"$ref": "#/components/schemas/Problem"}
                documented |= dict.fromkeys(content["examples"], int(status))
            else:
                assert int(status) < 400
    abstract = {"not-found", "unavailable"}  # a route fails with one of their kinds
    everywhere = {"head-too-large", "host-not-allowed", "malformed-request", "method-not-allowed"}
    known = {error.slug: error.status for error in ERRORS}
    assert documented == {
        slug: status for slug, status in known.items() if slug not in abstract | everywhere
    }


async def test_union_branches_do_not_show(client: httpx.AsyncClient) -> None:
    context = [{"speaker": "user", "text": "Hi."}]
    candidates = ["fine", {"id": "no text"}, 7, " ", {"text": ""}]
    body = {"context": context, "candidates": candidates}
    problem = check_problem(await client.post("/rank", json=body), 422)
    places = [tuple(error["loc"]) for error in problem["errors"]]
    assert places == [
        ("body", "candidates", 1, "text"),
        ("body", "candidates", 2),
        ("body", "candidates", 3),
        ("body", "candidates", 4, "text"),
    ]
    assert problem["errors"][1]["msg"] == "should be a string or should be an object"


@pytest.mark.parametrize(
    ("path", "body", "detail"),
    [
        ("/plan", {"goals": ["One.", "Two."]}, "body.goals.0: should be an object (and 1 more)"),
        ("/rank", {"candidates": ["x"]}, "body: give either session_id or context"),
        ("/pools/p/search", {"text": "x", "topk": 1}, "body.topk: there is no such field"),
        ("/sessions/a%0Ab/turn", {}, "path.session_id: use one line of printable text"),
        ("/pools/.p/search", {"text": "x"}, "path.name: use up to 128 letters, digits and"),
        ("/pools/p/search", {"text": "x", "slots": {"a b": "x"}}, "body.slots.a b: use up to 64"),
        ("/pools/p/search", {}, "body.text: is required"),
        ("/pools/p/search", {"text": 7}, "body.text: should be a string"),
        ("/pools/p/search", {"text": ""}, "body.text: should have at least 1 character"),
        ("/pools/p/search", {"text": "x", "top_k": 1e30}, "body.top_k: is too large a number"),
        ("/pools/p/search", {"text": "x", "top_k": 1.5}, "body.top_k: should be a whole number"),
        ("/pools/p/search", {"text": "x", "top_k": []}, "body.top_k: should be a whole number"),
        ("/pools/p/search", {"text": "x", "top_k": "5"}, "body.top_k: should be a number"),
        ("/pools/p/search", {"text": "x", "top_k": 0}, "should be greater than or equal to 1"),
        (TURN, {"speaker": "user"}, "body.text: is required"),
        (TURN, {**SAID, "explain": 1}, "body.explain: should be true or false"),
        (TURN, {**SAID, "diversity": []}, "body.diversity: should be a number"),
        (TURN, {**SAID, "exclude": "a"}, "body.exclude: should be a list"),
        (TURN, {**SAID, "exclude": ["a"] * 1001}, "body.exclude: should have at most 1000 items"),
        (TURN, {**SAID, "repeat": "never"}, "body.repeat: should be true, false, 'last' or 'near'"),
        (TURN, {**SAID, "wordings": "a"}, "body.wordings: should be 'best' or 'all'"),
    ],
)
async def test_wrong_fields_have_plain_errors(
    client: httpx.AsyncClient, path: str, body: dict[str, object], detail: str
) -> None:
    problem = check_problem(await client.post(path, json=body), 422)
    assert detail in problem["detail"]
    assert not re.search("Input|String|List|valid|validation|Python", problem["detail"])


async def test_json_in_a_query_is_explained_as_that_in_a_body(client: httpx.AsyncClient) -> None:
    problem = check_problem(await client.get("/pools/p/candidates?where=x"), 422)
    assert problem["detail"].startswith("query.where: not JSON: ")


async def test_a_wrong_idempotency_key_is_explained(client: httpx.AsyncClient) -> None:
    answer = await client.post(TURN, json=SAID, headers={"Idempotency-Key": "a key"})
    problem = check_problem(answer, 422)
    assert problem["detail"].startswith("header.idempotency-key: use up to 255 printable")


async def test_many_errors_are_cut_short(client: httpx.AsyncClient) -> None:
    body: dict[str, object] = {"context": [], "candidates": [{}] * 1000}
    problem = check_problem(await client.post("/rank", json=body), 422)
    assert len(problem["errors"]) == 50
    assert "(and 999 more)" in problem["detail"]


@pytest.mark.parametrize(
    ("few", "many"),
    [
        ('"x",' * 20_000, '"x",' * 50_000),
        ("1," * 20_000, "1," * 23_000),
        ("[[1]]," * 7_000, "[[1]]," * 8_000),
        ('{"a": 1},' * 9_000, '{"a": 1},' * 12_000),
        (r'"\\\", ' + "," * 50_000 + '",', r'"\\\\",' + "1," * 23_000),
    ],
    ids=["strings", "numbers", "lists", "objects", "commas in a string"],
)
async def test_values_are_counted_before_they_are_parsed(
    client: httpx.AsyncClient, few: str, many: str
) -> None:
    json = {"content-type": "application/json"}
    context = '"context": [{"speaker": "user", "text": "Hi."}]'
    answers = [
        await client.post(
            "/rank", content=f'{{{context}, "candidates": [{values}"x"]}}', headers=json
        )
        for values in (few, many)
    ]
    assert "more values" not in answers[0].text
    (error,) = check_problem(answers[1], 422)["errors"]
    assert (error["loc"], "more values" in error["msg"]) == (["body"], True)


async def test_unknown_query_parameter_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.get("/sessions/s/scores", params={"ids": "a", "id": "b"})
    assert check_problem(response, 422)["errors"][0]["loc"] == ["query", "id"]
