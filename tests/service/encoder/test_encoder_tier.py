"""A replica whose encoder is another process, over real HTTP: its answers, and its faults."""

import base64
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import httpx
import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.service.conftest import Examined
from tests.support.messages import DIALOGUE, REPLIES, problem, scores, wrong
from tests.support.relay import LOST, Relay, relaying
from tests.support.service import (
    Held,
    InNamespace,
    Launch,
    Live,
    launching,
    serve,
    with_and_without_heads,
)
from tests.support.waiting import eventually
from turnwise.models import DEFAULT_MODEL
from turnwise.models.card import CARD
from turnwise.models.encoder.head_arrays import HEADS_FILE
from turnwise.models.encoder.stated import TOKENIZER
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import ModelError
from turnwise.models.roles import EncoderKind, Role
from turnwise.service import api
from turnwise.service.app.server import run
from turnwise.service.cli.models.card import card
from turnwise.service.observe.tracing import telemetry
from turnwise.service.settings import Settings, SettingsError

Folder = Callable[[EncoderKind], Path]
Replica = Callable[..., Live]


class Tier(Protocol):
    def __call__(self, *, port: int = 0, **settings: object) -> Live: ...


@pytest.fixture
def tier(defaults: dict[str, object]) -> Iterator[Tier]:
    """Services that only encode; a test may stop one before its end."""
    with ExitStack() as stack:

        def start(*, port: int = 0, **fields: object) -> Live:
            settings = Settings.model_validate(defaults | fields)
            live = serve(settings, "asyncio", encoder_only=True, port=port)
            stack.callback(live.stop)
            return live

        yield start


@pytest.fixture(scope="module")
def shared(defaults: dict[str, object]) -> Iterator[Live]:
    """A tier that no test breaks."""
    live = serve(Settings.model_validate(defaults), "asyncio", encoder_only=True)
    yield live
    live.stop()


@pytest.fixture
def small(tmp_path: Path, tiny_encoder_folder: Folder, kind: EncoderKind) -> Path:
    """A folder with what a replica without the model's weights needs."""
    whole = tiny_encoder_folder(kind)
    folder = tmp_path / "small" / whole.name
    card(str(whole), out=folder)
    heads = {HEADS_FILE} if kind is EncoderKind.HEADS else set()
    assert {file.name for file in folder.iterdir()} == {CARD, TOKENIZER, *heads}
    return folder


def say(live: Live, text: str) -> httpx.Response:
    return live.try_turn(text, respond=False)


@pytest.fixture
def replica(launch: Launch, small: Path) -> Replica:
    """Services without the model's weights, from the URLs of their encoders."""
    return lambda url, **settings: launch(model=str(small), encoder_url=url, **settings)


@with_and_without_heads
def test_a_replica_answers_as_if_it_ran_the_model_itself(
    replica: Replica, tier: Tier, live: Live
) -> None:
    settings = live.services.settings
    encoder = tier(model=settings.model, data_dir=settings.data_dir)
    remote = replica(encoder.url)
    assert remote.get("/version")["model"]["fingerprint"] == live.encoder.fingerprint
    remote.fill()
    asked = {"respond": True, "top_k": len(REPLIES), "aggregation": "mean"}
    ours, theirs = (scores(each.say("s", DIALOGUE, **asked)) for each in (live, remote))
    assert list(ours) == list(theirs)
    assert ours == pytest.approx(theirs, abs=1e-3)
    documents = {"query": "Hello", "documents": ["", "Hi"]}  # heads read an empty text as it is
    ours, theirs = (each.post("/v1/rerank", **documents)["results"] for each in (live, remote))
    assert [one["index"] for one in ours] == [one["index"] for one in theirs]
    assert remote.metric("turnwise_encoder_calls_total", result="ok") > 0


@pytest.fixture(scope="module")
def shipped_tiers(shipped: Path, defaults: dict[str, object]) -> Iterator[dict[str, Live]]:
    """Tiers with the shipped model, as processors with VNNI and others run it."""
    models = {"any processor": shipped, "this processor": DEFAULT_MODEL}
    with ExitStack() as stack:
        tiers = {}
        for processor, model in models.items():
            settings = Settings.model_validate(defaults | {"model": str(model)})
            tiers[processor] = serve(settings, "asyncio", encoder_only=True)
            stack.callback(tiers[processor].stop)
        yield tiers


def test_a_replica_serves_the_shipped_model_by_tiers_on_different_processors(
    shipped_tiers: dict[str, Live], launch: Launch, examined: Examined
) -> None:
    with relaying(*(tier.url for tier in shipped_tiers.values())) as address:
        settings = {"model": str(DEFAULT_MODEL), "encoder_url": address.url}
        assert examined(**settings)["model"].grade == "ok"
        live = launch(**settings)
        live.fill()
        for session in ("first", "second"):
            turn = live.turn(session, "user", "Where is my parcel?")
            assert turn["candidates"][0]["text"] == "Your parcel left the depot this morning."


STORY = "Well, this is a long story, and it has nothing to do with what I want. " * 450
CHINESE = "我的订单在哪里"
TEXTS = {
    "short": "Where is my parcel?",
    "long": f"Where is my parcel? {STORY[:31_000]}Can I change my address?",
    "another script": CHINESE,
    "emoji": "👍" * 20_000,
}


@pytest.fixture(scope="module")
def own_and_remote(
    shipped: Path, shipped_tiers: dict[str, Live], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Live, Live]]:
    """A service that runs the shipped model, and one with the small files of it and a tier."""
    small = tmp_path_factory.mktemp("small") / shipped.name
    card(str(shipped), out=small)
    remote = {"model": str(small), "encoder_url": shipped_tiers["any processor"].url}
    with (
        launching(data_dir=tmp_path_factory.mktemp("own")) as start_own,
        launching(data_dir=tmp_path_factory.mktemp("remote")) as start_remote,
    ):
        yield start_own(model=str(shipped)), start_remote(**remote)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_messages_have_the_same_answers_as_without_a_tier(
    own_and_remote: tuple[Live, Live], text: str
) -> None:
    answers = []
    for live in own_and_remote:
        live.fill(pool="replies")
        answer = live.turn("s", "user", text, pool="replies", commit=False)
        numbers = [answer.pop("confidence"), *scores(answer).values()]
        chosen = [candidate["id"] for candidate in answer["candidates"]]
        notes = {name: answer.get(name) for name in ("truncated", "warnings", "abstained")}
        answers.append((numbers, chosen, notes))
    (own_numbers, *own), (remote_numbers, *remote) = answers
    assert own == remote
    assert own_numbers == pytest.approx(remote_numbers, abs=1e-4)


@pytest.fixture
def traced(
    provider: TracerProvider, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> InMemorySpanExporter:
    """The spans of the services that the test starts."""
    config = telemetry(enabled=False) | {"tracing": True, "tracer_provider": provider}
    monkeypatch.setattr(api, "telemetry", lambda **_: config)
    return spans


def test_a_trace_leads_through_the_queue_redis_and_the_tier(
    traced: InMemorySpanExporter, replica: Replica, tier: Tier
) -> None:
    live = replica(tier().url)
    assert say(live, "Hello").is_success
    turn = "POST /sessions/{session_id}/turn"
    call = "POST /v1/embeddings"
    at_the_tier = f"{turn} > encode > batch > encoder {call} > {call}"
    wanted = {
        turn,
        f"{turn} > state",
        f"{turn} > state > redis session_read",
        f"{turn} > state > redis session_write",
        f"{turn} > encode",
        f"{turn} > encode > queue",
        f"{turn} > encode > tokenize",
        f"{turn} > encode > batch",
        f"{turn} > encode > batch > encoder {call}",
        at_the_tier,
        f"{at_the_tier} > queue",
        f"{at_the_tier} > tokenize",
        f"{at_the_tier} > batch",
    }
    live.http.get("/metrics")
    eventually(lambda: wanted == {way for way in ways(traced) if way.startswith(turn)})
    assert not any("/metrics" in way for way in ways(traced))


def ways(spans: InMemorySpanExporter) -> list[str]:
    """The names that lead from the root of a trace to each span."""
    known = {span.context.span_id: span for span in spans.get_finished_spans()}

    def way(span: ReadableSpan) -> str:
        above = known.get(span.parent.span_id) if span.parent else None
        return f"{way(above)} > {span.name}" if above else span.name

    return [way(span) for span in known.values()]


def test_while_the_tier_is_away_nothing_is_lost_and_it_comes_back(
    replica: Replica, tier: Tier
) -> None:
    encoder = tier()
    live = replica(encoder.url)
    live.fill()
    live.turn("s", "user", "Hello")
    encoder.stop()
    for number in range(5):
        refused = say(live, f"Anyone {number}?")
        assert problem(refused) == (503, "encoder-unavailable")
        assert int(refused.headers["Retry-After"]) >= 1
    items = [{"id": "new", "text": "A new reply."}]
    upload = live.http.put("/pools/default/candidates", json=items)
    assert problem(upload) == (503, "encoder-unavailable")
    assert not live.ready
    assert live.http.get("/livez").is_success
    assert live.get("/sessions/s")["turns"] == 1
    assert live.get("/pools/default")["size"] == len(REPLIES)
    tier(port=encoder.http.base_url.port or 0)
    eventually(lambda: live.ready)
    assert live.turn("s", "user", "Are you there?")["turn"] == 2


def test_readiness_notices_a_tier_that_goes_away_while_nobody_asks(
    replica: Replica, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.service.encoder.queue.IDLE_SECONDS", 0.05)
    encoder = tier()
    live = replica(encoder.url)
    encoder.stop()
    eventually(lambda: not live.ready)


def test_a_tier_that_hangs_does_not_delay_an_answer_beyond_the_deadline(
    replica: Replica, tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tier()
    live = replica(encoder.url, request_timeout=0.5)
    held = Held(encoder, monkeypatch)
    try:
        status, slug = problem(say(live, "Hello"))
    finally:
        held.let_go()
    assert (status, slug in {"deadline-exceeded", "encoder-unavailable"}) == (503, True)
    assert live.http.get("/sessions/s").status_code == 404


@pytest.fixture
def relay(shared: Live) -> Iterator[Relay]:
    """A tier behind a relay, which answers for it or loses its answers."""
    with relaying(shared.url) as relay:
        yield relay


def test_a_call_is_tried_again_after_a_lost_connection_and_a_busy_tier(
    replica: Replica, relay: Relay
) -> None:
    live = replica(relay.url)
    retried = live.increase("turnwise_encoder_calls_total", result="retried")
    written = live.written()
    relay.faults.extend([httpx.Response(429), LOST])
    assert say(live, "Hello").is_success
    assert retried() == 2
    eventually(lambda: written() == 1)  # [B1] would take the next fault
    relay.faults.append(httpx.Response(502))
    assert say(live, "Hello again").is_success
    assert retried() == 3
    relay.faults.extend([httpx.Response(500)] * 100)  # more than a call is tried again
    assert problem(say(live, "Is it open?")) == (503, "encoder-unavailable")
    relay.faults.clear()
    eventually(lambda: live.ready)
    assert say(live, "Is it open?").json()["turn"] == 3


ANOTHER = {"data": [{"index": 0, "embedding": [1.0] * 32}], "fingerprint": "another"}
UNUSABLE = {
    "rejected": (httpx.Response(413), (500, "encoder-failed")),
    "another model": (httpx.Response(200, json=ANOTHER), (503, "encoder-unavailable")),
    "no vector": (
        httpx.Response(200, json={"data": [{"index": 0, "embedding": "no numbers"}]}),
        (503, "encoder-unavailable"),
    ),
    "no text's": (httpx.Response(200, json={"data": []}), (503, "encoder-unavailable")),
    "another API": (httpx.Response(200, json=[]), (503, "encoder-unavailable")),
}


def test_an_answer_without_the_vector_fails_its_text_alone(replica: Replica, relay: Relay) -> None:
    live = replica(relay.url)
    for turn, (name, (answer, failure)) in enumerate(UNUSABLE.items(), 1):
        relay.faults.append(answer)
        assert problem(say(live, f"Hello {turn}")) == failure, name
        written = live.written()
        assert say(live, f"Hello {turn}").json()["turn"] == turn
        eventually(lambda done=written: done() == 1)  # [B1] would take the next fault


def test_a_text_that_the_tier_rejects_does_not_stop_others(replica: Replica, relay: Relay) -> None:
    live = replica(relay.url)
    for number in range(5):
        works = live.increase("turnwise_encoder_calls_total", result="ok")
        relay.faults.append(httpx.Response(422, json={}))
        assert problem(say(live, f"Rejected {number}")) == (500, "encoder-failed")
        eventually(lambda done=works: done() == 1)  # the replica tries another text
    assert live.ready
    relay.faults += [httpx.Response(422, json={})] * 8
    for number in range(3):
        assert problem(say(live, f"Refused {number}"))[0] in {500, 503}
    eventually(lambda: not live.ready)
    relay.faults.clear()
    eventually(lambda: live.ready)
    assert say(live, "Hello").json()["turn"] == 1


def test_a_tier_with_another_model_is_refused_at_the_start(
    tier: Tier, small: Path, tmp_path: Path, tiny_encoder_folder: Folder, in_torch: Path
) -> None:
    other = tmp_path / "other" / small.name
    shutil.copytree(tiny_encoder_folder(EncoderKind.SINGLE), other)
    with relaying(tier(model=str(other), data_dir=in_torch).url) as relay:
        settings = Settings(model=str(small), encoder_url=relay.url, data_dir=tmp_path, port=0)
        with pytest.raises(ModelError, match=r"it has another model \(\w+, not \w+\)$"):
            run(settings)
        encoder = UtteranceEncoder(other, device="cpu")
        texts = [["a", "b", "c"], ["a", "b", "d"]]
        for each in texts:  # an endpoint that tells no fingerprint, and ignores base64
            vectors = encoder.encode(each, Role.AFTER).tolist()
            data = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]
            relay.faults.append(httpx.Response(200, json={"data": data}))
            with pytest.raises(ModelError, match="another model, pooling or limit of tokens"):
                run(settings)
        relay.faults.append(httpx.Response(401))
        with pytest.raises(ModelError, match="status 401"):
            run(settings)


def test_a_tier_does_not_ask_another_tier(defaults: dict[str, object]) -> None:
    settings = Settings.model_validate(defaults | {"encoder_url": "http://127.0.0.1:9"})
    with pytest.raises(SettingsError, match="TURNWISE_ENCODER_URL: an encoder-only service"):
        run(settings, encoder_only=True)


def test_the_endpoint_returns_the_vectors_of_texts_as_they_are(
    shared: Live, tiny_encoder: Callable[[EncoderKind], UtteranceEncoder]
) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    counted = shared.increase("turnwise_encoded_texts_total", role="any", lane="critical")
    asked = {"model": shared.encoder.name, "input": ["[AFTER] Hello", "[AFTER] Bye"]}
    answer = shared.post("/v1/embeddings", **asked, user="me")
    found = [item["embedding"] for item in answer["data"]]
    assert np.allclose(found, encoder.encode(["Hello", "Bye"], Role.AFTER), atol=1e-4)
    packed = shared.post("/v1/embeddings", **asked, encoding_format="base64")
    for vector, item in zip(found, packed["data"], strict=True):
        assert np.allclose(np.frombuffer(base64.b64decode(item["embedding"]), "<f4"), vector)
    (one,) = shared.post("/v1/embeddings", **asked | {"input": "[AFTER] Bye"})["data"]
    assert np.allclose(one["embedding"], found[1], atol=1e-5)
    assert shared.ready
    assert counted() == 5


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [("input", ["a"] * 1001, []), ("input", ["a", "a" * 70_000], [1]), ("dimensions", 8, [])],
)
def test_the_endpoint_is_bounded(shared: Live, field: str, value: object, place: list[int]) -> None:
    asked = {"model": shared.encoder.name, "input": "a", field: value}
    refused = shared.http.post("/v1/embeddings", json=asked)
    assert wrong(refused)[0] == ["body", field, *place]


def test_a_tier_with_keys_takes_only_those(replica: Replica, tier: Tier) -> None:
    encoder = tier(api_keys=[InNamespace.KEY])
    asked = {"model": encoder.encoder.name, "input": "a"}
    assert problem(encoder.http.post("/v1/embeddings", json=asked)) == (401, "unauthenticated")
    live = replica(encoder.url, encoder_key="tests")
    assert say(live, "Hello").is_success


def test_the_doctor_looks_at_the_tier(
    tier: Tier,
    small: Path,
    examined: Examined,
) -> None:
    encoder = tier()
    found = examined(model=str(small), encoder_url=encoder.url)["model"]
    assert found.grade == "ok"
    assert "embeddings over HTTP" in found.found
    encoder.stop()
    found = examined(model=str(small), encoder_url=encoder.url)["model"]
    assert (found.grade, found.advice) == ("fail", "check TURNWISE_MODEL and TURNWISE_ENCODER_URL")
