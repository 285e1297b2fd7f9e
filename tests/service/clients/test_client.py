"""Both clients against a real service, with a relay between them that makes trouble."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, cast

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from pydantic import ValidationError

from tests.support.messages import DIALOGUE, REPLIES, write_lines
from tests.support.relay import LOST, Relay, relaying
from tests.support.service import Live
from turnwise.service.api.http.problems import problem_response
from turnwise.service.client import (
    AsyncClient,
    Avoided,
    Client,
    ConflictError,
    DataError,
    GivenCandidate,
    GivenTurn,
    Goal,
    InvalidRequestError,
    NotFoundError,
    ProblemError,
    UnexpectedAnswerError,
    UnreachableError,
    UploadedCandidate,
    uploads,
)
from turnwise.service.errors import Draining, Overloaded, PoolFull

HELLO = [GivenTurn(speaker="user", text="Hello")]


class Connect(Protocol):
    def __call__(self, url: str, **options: Any) -> Client: ...


class Waiting:
    """Something of an AsyncClient's, whose coroutines are awaited in a loop of another thread."""

    def __init__(self, inner: object, portal: BlockingPortal) -> None:
        self._inner = inner
        self._portal = portal

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return self._call(value) if callable(value) else value

    def __enter__(self) -> "Waiting":
        self._wait(self._inner.__aenter__())  # type: ignore[attr-defined]
        return self

    def __exit__(self, *error: object) -> None:
        self._wait(self._inner.__aexit__(*error))  # type: ignore[attr-defined]

    def _call(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            made = method(*args, **options)
            return self._wait(made) if inspect.iscoroutine(made) else Waiting(made, self._portal)

        return call

    def _wait(self, coroutine: Any) -> Any:
        async def awaited() -> object:
            return await coroutine

        return self._portal.call(awaited)


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make clients of one kind, which are closed at the end."""
    with ExitStack() as stack:
        if request.param == "sync":
            yield lambda url, **options: stack.enter_context(Client(url, **options))
        else:
            portal = stack.enter_context(start_blocking_portal())

            def make(url: str, **options: Any) -> Client:
                client = Waiting(AsyncClient(url, **options), portal)
                return cast(Client, stack.enter_context(client))

            yield make


@pytest.fixture
def client(live: Live, connect: Connect) -> Client:
    return connect(live.url)


@pytest.fixture
def relay(live: Live) -> Iterator[Relay]:
    with relaying(live.url) as relay:
        yield relay


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between attempts, which are not kept."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr("turnwise.service.client.synchronous.sleep", made.append)
    monkeypatch.setattr("turnwise.service.client.asynchronous.sleep", sleep)
    return made


def said_no(error: type[Draining | Overloaded | PoolFull]) -> httpx.Response:
    """The answer of a service that says no, as the service makes it."""
    answer = problem_response(error("not now"))
    return httpx.Response(
        answer.status_code, headers=dict(answer.headers), content=bytes(answer.body)
    )


def test_a_conversation(client: Client) -> None:
    with client.session("ada") as session:
        first = session.turn("user", "Where is my parcel?", top_k=3, explain=True)
        assert (first.session_id, first.turn, len(first.candidates)) == ("ada", 1, 3)
        assert first.candidates[0].contributions is not None
        assert session.turn("bot", first.candidates[0].text).candidates == []
        matrix = session.scores(["r0", "r3"], pool="default", aggregation="mean")
        assert (matrix.ids, len(matrix.scores)) == (["r0", "r3"], 2)
        assert session.undo().removed.text == first.candidates[0].text
        assert [post.text for post in session.transcript().transcript] == ["Where is my parcel?"]
        session.delete()
        with pytest.raises(NotFoundError):
            session.transcript()


def test_feedback_is_given_although_an_answer_is_lost(
    relay: Relay, connect: Connect, pauses: list[float]
) -> None:
    session = connect(relay.url).session("ada")
    first, second = session.turn("user", "Where is my parcel?", top_k=2).candidates
    relay.faults.append(LOST)
    edited = session.feedback(1, second.id, "edited", "It is on its way.")
    chosen = session.feedback(1, first.id, "chosen")
    assert (edited.rank, edited.text, chosen.rank, len(pauses)) == (2, "It is on its way.", 1, 1)
    assert session.transcript().feedback == [chosen, edited]
    with pytest.raises(InvalidRequestError, match="did not offer"):
        session.feedback(1, "r99", "shown")


def test_candidates_are_ranked_toward_goals_of_a_session_and_of_a_context(client: Client) -> None:
    session = client.session("ada")
    session.turn("user", "Hello")
    goals = [Goal(text="Thank you!", speaker="user")]
    candidates = ["Bye.", GivenCandidate(text="Of course.", id="c")]
    avoid = [Avoided(text="Oh no", threshold=9.0)]
    one = session.rank(candidates=candidates, goals=goals, avoid=avoid)
    two = client.rank(HELLO, candidates=candidates, goals=goals)
    assert one.rejected == []
    assert [ranked.score for ranked in one.ranking] == pytest.approx(
        [ranked.score for ranked in two.ranking], abs=1e-3
    )
    assert {ranked.id for ranked in two.ranking} == {None, "c"}


def test_pools(client: Client) -> None:
    pool = client.pool("shop")
    assert pool.create("of a shop").description == "of a shop"
    edited = pool.upsert(["Good morning", UploadedCandidate(text="Bye", id="a/../b ?")])
    assert (edited.upserted, edited.size) == (2, 2)
    assert [info.name for info in client.pools().pools] == ["default", "shop"]
    (found,) = pool.search("Hello", top_k=1).candidates
    assert found.text in {"Good morning", "Bye"}
    with pytest.raises(TypeError, match="not one text"):
        pool.upsert("replies.jsonl")
    assert pool.candidates("BYE").candidates == [pool.candidate("a/../b ?")]
    assert pool.change("a/../b ?", metadata={"topic": "end"}, group="bye").upserted == 1
    page = pool.candidates(where={"topic": "end"}, limit=1)
    assert [(each.text, each.group) for each in page.candidates] == [("Bye", "bye")]
    first = pool.candidates(limit=1)
    assert pool.candidates(limit=1, cursor=first.cursor).candidates != first.candidates
    assert pool.remove("a/../b ?").size == 1
    removed = pool.remove_many([found.id, "nowhere", found.id])
    assert (removed.version, removed.missing, removed.removed + removed.size) == (4, 1, 1)
    assert client.pool("front").point_to("shop").aliases == ["front"]
    assert client.pool("front").info().name == "shop"
    with pytest.raises(ConflictError, match="points at pool 'shop'"):
        pool.delete()
    client.pool("front").delete_alias()
    assert pool.info().aliases == []
    pool.delete()
    with pytest.raises(NotFoundError):
        pool.info()


def test_a_turn_that_met_no_for_an_answer_waits_as_long_as_it_is_asked_to(
    relay: Relay, connect: Connect, pauses: list[float]
) -> None:
    relay.faults.extend([said_no(Overloaded), said_no(Draining)])
    answer = connect(relay.url).session("s").turn("user", "Hello")
    assert (answer.turn, answer.replayed) == (1, False)
    assert pauses == [1.0, 5.0]


def test_a_turn_whose_answer_was_lost_is_the_same_turn(
    relay: Relay, connect: Connect, pauses: list[float]
) -> None:
    relay.faults.extend([LOST, LOST])
    session = connect(relay.url).session("s")
    answer = session.turn("user", "Hello")
    assert (answer.turn, answer.replayed, len(pauses)) == (1, True, 2)
    assert answer.candidates
    assert session.transcript().turns == 1


def test_an_undo_that_may_have_been_done_is_not_done_again(
    live: Live, relay: Relay, connect: Connect, pauses: list[float]
) -> None:
    live.say("s", DIALOGUE[:3])
    session = connect(relay.url).session("s")
    relay.faults.append(LOST)
    with pytest.raises(UnreachableError):
        session.undo()
    assert (session.transcript().turns, pauses) == (2, [])
    relay.faults.append(said_no(Overloaded))
    assert session.undo().turn == 1


def test_a_deletion_whose_answer_was_lost_succeeds(
    live: Live, relay: Relay, connect: Connect, pauses: list[float]
) -> None:
    live.turn("s", "user", "Hello")
    session = connect(relay.url).session("s")
    relay.faults.append(LOST)
    session.delete()
    assert len(pauses) == 1
    with pytest.raises(NotFoundError):
        session.delete()


def test_values_are_checked_when_they_are_made_and_plain_fields_by_the_service(
    relay: Relay, connect: Connect
) -> None:
    with pytest.raises(ValidationError, match="at least 1 character"):
        UploadedCandidate(text="")
    pool = connect(relay.url).pool("checked")
    pool.create()
    with pytest.raises(InvalidRequestError, match="at least 1 character") as rejected:
        pool.upsert([{"text": ""}])
    assert [field.loc for field in rejected.value.errors] == [("body", 0, "text")]


def test_a_permanent_problem_is_not_retried(
    relay: Relay, connect: Connect, pauses: list[float]
) -> None:
    client = connect(relay.url)
    with pytest.raises(InvalidRequestError) as invalid:
        client.rank(HELLO, candidates=["a", "x" * 5000])
    (field,) = invalid.value.errors
    assert field.loc == ("body", "candidates", 1)
    assert invalid.value.request_id
    session = client.session("s")
    session.turn("user", "Hello")
    with pytest.raises(ConflictError) as conflict:
        session.turn("user", "Hello", expected_turn=1)
    assert conflict.value.kind == "turn-conflict"
    with pytest.raises(NotFoundError):
        session.turn("user", "Hello", pool="nowhere")
    assert (pauses, len(relay.seen)) == ([], 4)


def test_another_server_is_an_unexpected_answer(
    live: Live, relay: Relay, connect: Connect, pauses: list[float]
) -> None:
    client = connect(relay.url)
    assert client.version().model.fingerprint == live.encoder.fingerprint
    relay.faults.extend(
        [
            httpx.Response(404, text="nothing here"),
            httpx.Response(302, headers={"location": "/login"}),
            httpx.Response(200, text="<html>"),
            httpx.Response(200, json={"another": "service"}),
            httpx.Response(500, headers={"content-type": "application/problem+json"}, text="{}"),
        ]
    )
    for status in (404, 302, 200, 200, 500):
        with pytest.raises(UnexpectedAnswerError, match="is the URL right") as caught:
            client.version()
        assert caught.value.status == status
    relay.faults.append(httpx.Response(502, text="bad gateway"))
    assert client.ready().ready
    assert len(pauses) == 1


def test_fields_that_are_newer_than_the_client_do_no_harm(relay: Relay, connect: Connect) -> None:
    client = connect(relay.url)
    known = client.session("s").turn("user", "Hello").model_dump(mode="json")
    known["candidates"][0]["new"] = known["newer"] = 1
    relay.faults.append(httpx.Response(200, json=known))
    assert client.session("s").turn("user", "Hello").turn == 1


FIVE = [{"id": str(n), "text": f"reply {n}"} for n in range(5)]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "BATCH", 2)


@pytest.mark.usefixtures("small_batches")
def test_a_file_is_loaded_in_batches_or_at_once_with_progress(
    client: Client, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    pool = client.pool("new")
    pool.create()
    file = write_lines(tmp_path / "a.jsonl.gz", *FIVE)
    loaded = pool.load(file, lambda *counts: seen.append(counts))
    assert (loaded.version, loaded.upserted, loaded.unchanged, loaded.size) == (3, 5, 0, 5)
    assert seen == [(2, 5), (4, 5), (5, 5)]
    assert pool.upsert(file, lambda *counts: seen.append(counts)).unchanged == 5


@pytest.mark.usefixtures("small_batches")
def test_a_load_that_fails_keeps_what_is_done_and_goes_on_from_there(
    relay: Relay, connect: Connect, pauses: list[float], tmp_path: Path
) -> None:
    pool = connect(relay.url).pool()
    file = write_lines(tmp_path / "a.jsonl", *FIVE)
    relay.faults.extend([None, LOST, said_no(PoolFull)])
    with pytest.raises(ConflictError) as caught:
        pool.load(file)
    assert len(pauses) == 1
    (note,) = caught.value.__notes__
    assert note.startswith("the first 2 of 5 candidates are in pool 'default'; load the file again")
    again = pool.load(str(file))
    assert (again.upserted, again.unchanged, again.size) == (1, 4, len(REPLIES) + 5)


def test_an_upload_that_fails_underway_says_why(
    client: Client, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(live.encoder, "forward", broken)
    with pytest.raises(ProblemError) as caught:
        client.pool().upsert(["new one", "new two"])
    assert (caught.value.status, caught.value.kind) == (500, "encoder-failed")
    assert client.pool().info().size == len(REPLIES)


def test_an_upload_that_is_too_large_for_the_service_is_not_sent(
    relay: Relay, connect: Connect, live: Live
) -> None:
    version = live.get("/version")
    limits = version["limits"] | {"max_upload_bytes": 100_000}
    relay.faults.append(httpx.Response(200, json=version | {"limits": limits}))
    with pytest.raises(ProblemError, match=r"bytes are more than the limit of 100000") as caught:
        connect(relay.url).pool().upsert(["x" * 1000] * 100)
    assert (caught.value.status, caught.value.kind) == (413, "body-too-large")
    assert relay.seen == ["GET /version"]


def test_an_upload_that_is_broken_off_is_sent_again(
    relay: Relay, connect: Connect, pauses: list[float]
) -> None:
    lines = '{"encoded":1,"total":2}\n'
    relay.faults.append(httpx.Response(200, text=lines))
    assert connect(relay.url).pool().upsert(["One"]).upserted == 1
    assert len(pauses) == 1


@pytest.mark.parametrize(
    ("candidate", "field", "loaded"),
    [
        ({"text": "x" * 5000}, "text", 2),
        ({"text": "x", "id": "1"}, None, 0),  # two candidates of an id: nothing is sent
    ],
)
@pytest.mark.usefixtures("small_batches")
def test_a_wrong_candidate_of_a_later_batch_is_named_by_its_line(
    client: Client, tmp_path: Path, candidate: dict[str, object], field: str | None, loaded: int
) -> None:
    good = [{"text": "Hello"}, {"text": "Hi"}, {"text": "Bye", "id": "1"}]
    file = write_lines(tmp_path / "a.jsonl", *good, candidate)
    with pytest.raises(DataError) as caught:
        client.pool().load(file)
    assert (caught.value.file, caught.value.line) == (str(file), 7)  # every other line is empty
    assert caught.value.field == field
    assert client.pool().info().size == len(REPLIES) + loaded
