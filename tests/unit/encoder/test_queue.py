import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import numpy as np
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN, Span, format_trace_id, use_span

from tests.support.waiting import PATIENCE, until
from tests.unit.encoder.acting import acting
from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import Relation, Role, RoleText
from turnwise.service.current_request import request_id
from turnwise.service.encoder.batcher import EncodingRequest, Priority, TokenizedText
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.encoder.runner import BatchRunner
from turnwise.service.errors import DeadlineExceeded, Draining, EncoderFailed, Overloaded
from turnwise.service.observe.metrics import Metrics

pytestmark = pytest.mark.anyio

POISON = "poison"


class StubEncoder:
    """Its vectors spell out the text; it can be held up inside a batch, and made to fail."""

    dimension = 3
    device = "cpu"
    seconds = 0.0
    """Seconds that a batch takes."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)
        self.open.set()
        self.fails: Callable[[str], bool] = lambda _: False
        self.cannot_cut: Callable[[str], bool] = lambda _: False

    def tokenize(self, items: Sequence[RoleText]) -> list[list[int]]:
        if any(self.cannot_cut(item.text) for item in items):
            raise ValueError("cannot cut this up")
        return [list(item.text.encode()) for item in items]

    def forward(self, tokens: list[list[int]]) -> Float32:
        texts = [bytes(ids).decode() for ids in tokens]
        self.batches.append(texts)
        self.entered.release()
        assert self.open.wait(PATIENCE)
        time.sleep(self.seconds)
        if any(self.fails(text) for text in texts):
            raise RuntimeError("the device is on fire")
        return np.array([vector(text) for text in texts], np.float32)

    async def hold(self, queue: EncoderQueue) -> "asyncio.Task[Float32]":
        """Keep the device busy with one text until `open` is set."""
        self.open.clear()
        while self.entered.acquire(blocking=False):
            pass
        task = asyncio.create_task(queue.encode(items("held")))
        assert await asyncio.to_thread(self.entered.acquire, timeout=PATIENCE)
        return task

    @property
    def encoded(self) -> list[str]:
        return [text for batch in self.batches for text in batch]


def vector(text: str) -> tuple[float, float, float]:
    return (len(text), ord(text[0]), ord(text[-1]))


def items(*texts: str) -> list[RoleText]:
    return [RoleText(text, Role.AFTER) for text in texts]


async def admitted(*work: Coroutine[Any, Any, Float32]) -> "list[asyncio.Task[Float32]]":
    """Start work, and let it run until it waits."""
    tasks = [asyncio.create_task(each) for each in work]
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    return tasks


@pytest.fixture
def stub() -> StubEncoder:
    return StubEncoder()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@asynccontextmanager
async def running(
    stub: StubEncoder,
    metrics: Metrics,
    *,
    limit: int = 1000,
    batch_tokens: int = 1000,
    max_wait: float = math.inf,
) -> AsyncIterator[EncoderQueue]:
    queue = EncoderQueue(
        cast(UtteranceEncoder, stub),
        metrics,
        limit=limit,
        batch_tokens=batch_tokens,
        max_wait=max_wait,
    )
    await queue.start()
    stub.batches.clear()
    try:
        yield queue
    finally:
        stub.open.set()
        await queue.drain(PATIENCE)


@pytest.fixture
async def queue(stub: StubEncoder, metrics: Metrics) -> AsyncIterator[EncoderQueue]:
    async with running(stub, metrics) as queue:
        yield queue


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(name, labels)
    assert found is not None
    return found


async def test_each_request_gets_its_vectors_in_the_order_of_its_texts(queue: EncoderQueue) -> None:
    requests = [[f"{n} and so on"[: 3 + (n + k) % 7] for k in range(n % 9)] for n in range(60)]
    answers = await asyncio.gather(*(queue.encode(items(*texts)) for texts in requests))
    assert {answer.dtype for answer in answers} == {np.dtype(np.float32)}
    for texts, answer in zip(requests, answers, strict=True):
        assert answer.tolist() == [list(vector(text)) for text in texts]


async def test_texts_that_arrive_while_the_device_is_busy_are_one_batch(
    queue: EncoderQueue, stub: StubEncoder
) -> None:
    held = await stub.hold(queue)
    (task,) = await admitted(queue.encode(items("a", "b", "c")))
    stub.open.set()
    await asyncio.gather(held, task)
    assert stub.batches == [["held"], ["a", "b", "c"]]


async def test_the_next_texts_are_cut_up_while_the_device_works(
    queue: EncoderQueue, stub: StubEncoder
) -> None:
    held = await stub.hold(queue)
    stub.cannot_cut = lambda text: text == "next"
    with pytest.raises(EncoderFailed):
        await queue.encode(items("next"), timeout=PATIENCE)
    assert not held.done()
    stub.open.set()
    await held


async def test_a_turn_waits_for_one_small_batch_of_an_upload(
    stub: StubEncoder, metrics: Metrics
) -> None:
    async with running(stub, metrics, batch_tokens=4096) as queue:
        held = await stub.hold(queue)
        (bulk,) = await admitted(queue.encode(items(*["x" * 32] * 64), Priority.BULK))
        stub.open.set()
        await asyncio.gather(held, bulk)
        assert [len(batch) for batch in stub.batches] == [1] + [8] * 8


async def test_texts_beyond_the_limit_are_rejected(stub: StubEncoder, metrics: Metrics) -> None:
    async with running(stub, metrics, limit=3) as queue:
        held = await stub.hold(queue)
        (waiting,) = await admitted(queue.encode(items("a", "b")))
        with pytest.raises(Overloaded):
            await queue.encode(items("c", "d"), Priority.IDLE)
        rejected = {"reason": "queue_full"}
        assert value(metrics, "turnwise_rejected_requests_total", **rejected) == 0  # nobody heard
        with pytest.raises(Overloaded):
            await queue.encode(items("c", "d", "e"))
        assert value(metrics, "turnwise_rejected_requests_total", **rejected) == 1
        stub.open.set()
        await asyncio.gather(held, waiting)
        assert (await queue.encode(items("c", "d", "e", "f"))).shape == (4, 3)  # nothing waits


async def test_a_request_whose_first_texts_were_admitted_is_not_rejected_later(
    stub: StubEncoder, metrics: Metrics
) -> None:
    async with running(stub, metrics, limit=2) as queue:
        held = await stub.hold(queue)
        (waiting,) = await admitted(queue.encode(items("a", "b")))
        with pytest.raises(Overloaded):
            queue.check(Priority.LIST)
        more = queue.encode(items("c"), Priority.LIST, admitted=True)
        (later,) = await admitted(more)
        stub.open.set()
        await asyncio.gather(held, waiting, later)


async def test_a_flood_of_one_namespace_leaves_room_for_a_text_of_another(
    stub: StubEncoder, metrics: Metrics
) -> None:
    async with running(stub, metrics, limit=20, batch_tokens=64) as queue:
        held = await stub.hold(queue)
        with acting("flood"):
            flood = await admitted(*(queue.encode(items("f" * 32)) for _ in range(20)))
            with pytest.raises(Overloaded):
                queue.check(Priority.TURN)
        with acting("other"):
            queue.check(Priority.TURN)
            (other,) = await admitted(queue.encode(items("other")))
        stub.open.set()
        await asyncio.gather(held, *flood, other)
    assert "other" in stub.encoded[: 1 + 2 + 1]  # after the running batch and one of two others


async def test_a_text_that_would_wait_too_long_is_rejected_at_once(
    stub: StubEncoder, metrics: Metrics
) -> None:
    async with running(stub, metrics, max_wait=1e-9) as queue:  # any batch takes longer
        await queue.encode(items("a"))
        held = await stub.hold(queue)
        (waiting,) = await admitted(queue.encode(items("b")))
        with pytest.raises(Overloaded):
            queue.check(Priority.TURN)
        with pytest.raises(Overloaded):
            await queue.encode(items("c"))
        (bulk,) = await admitted(queue.encode(items("d"), Priority.BULK))
        stub.open.set()
        await asyncio.gather(held, waiting, bulk)
        queue.check(Priority.TURN)  # nothing waits: it would be next
        assert (await queue.encode(items("c"))).shape == (1, 3)


async def test_expired_texts_are_not_encoded(
    queue: EncoderQueue, stub: StubEncoder, metrics: Metrics
) -> None:
    held = await stub.hold(queue)
    with pytest.raises(DeadlineExceeded):
        await queue.encode(items("late"), timeout=0.001)
    stub.open.set()
    await held
    await queue.encode(items("after"))
    assert stub.encoded == ["held", "after"]
    assert value(metrics, "turnwise_dropped_texts_total", reason="deadline") == 1


@pytest.mark.parametrize("step", ["cannot_cut", "fails"])
async def test_a_failing_text_fails_its_own_request_only(
    queue: EncoderQueue, stub: StubEncoder, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    setattr(stub, step, lambda text: text == POISON)
    held = await stub.hold(queue)
    tasks = await admitted(*(queue.encode(items(text)) for text in ("a", POISON, "b")))
    stub.open.set()
    with caplog.at_level(logging.CRITICAL, "turnwise"):
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    await held
    assert [type(answer) for answer in answers] == [np.ndarray, EncoderFailed, np.ndarray]
    assert stub.encoded.count(POISON) <= 2
    assert queue.healthy


async def test_a_failure_is_logged_with_the_ids_of_its_request(
    queue: EncoderQueue,
    stub: StubEncoder,
    provider: TracerProvider,
    log_lines: Callable[[], list[dict[str, Any]]],
) -> None:
    stub.fails = lambda text: text == POISON
    token = request_id.set("r-42")
    with provider.get_tracer("test").start_as_current_span("request") as request:
        with acting("shop"), pytest.raises(EncoderFailed):
            await queue.encode(items(POISON))
        request_id.reset(token)
    (line,) = log_lines()
    ids = [line[name] for name in ("message", "request_id", "namespace", "trace_id")]
    trace_id = format_trace_id(request.get_span_context().trace_id)
    assert ids == ["the encoder failed", "r-42", "shop", trace_id]


async def test_the_batches_of_an_upload_have_no_spans(
    queue: EncoderQueue, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    with provider.get_tracer("test").start_as_current_span("upload"):
        await queue.encode(items("a", "b"), Priority.BULK)
    assert [span.name for span in spans.get_finished_spans()] == ["upload"]


async def test_the_spans_of_requests_that_share_a_batch_are_linked(
    stub: StubEncoder, metrics: Metrics, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    def request(text: str, span: Span) -> EncodingRequest:
        with use_span(span):
            return EncodingRequest(
                model=stub,
                texts=items(text),
                priority=Priority.TURN,
                answer=asyncio.get_running_loop().create_future(),
                vectors=np.empty((1, stub.dimension), np.float32),
            )

    tracer = provider.get_tracer("test")
    requests = [request(name, tracer.start_span(name)) for name in ("a", "b", "c")]
    requests.append(request("untraced", INVALID_SPAN))
    names = ("a", "b", "c", "untraced")
    tokens = stub.tokenize(items(*names))
    batch = [TokenizedText(each, 0, ids) for each, ids in zip(requests, tokens, strict=True)]
    await asyncio.to_thread(BatchRunner(cast(UtteranceEncoder, stub), metrics).run, batch)
    await asyncio.gather(*(each.answer for each in requests))
    found = spans.get_finished_spans()
    first, *others = (span for span in found if span.name == "batch")
    for traced in (found[:3], (first, *others)):  # their queue spans, and their batch spans
        parents = [span.parent and span.parent.span_id for span in traced]
        assert parents == [each.span.get_span_context().span_id for each in requests[:3]]
    assert (first.attributes or {})["turnwise.batch.texts"] == 4
    assert [link.context.span_id for link in first.links] == [o.context.span_id for o in others]
    for other in others:
        assert [link.context.span_id for link in other.links] == [first.context.span_id]
    (family,) = metrics.stage_seconds.collect()
    of_stages = {s.labels["stage"]: s.exemplar.labels for s in family.samples if s.exemplar}
    trace_ids = {format_trace_id(span.context.trace_id) for span in found}
    assert of_stages.keys() == {"queue", "encode"}
    assert {labels["trace_id"] for labels in of_stages.values()} <= trace_ids


async def test_a_failed_request_is_not_encoded_any_further(
    queue: EncoderQueue, stub: StubEncoder
) -> None:
    stub.fails = lambda text: text == POISON
    with pytest.raises(EncoderFailed):
        await queue.encode(items(POISON, "x" * 300, "y" * 300, "z" * 600))
    await queue.encode(items("after"))
    assert ["x" * 300] not in stub.batches  # alone, after the batch with the poison in it
    assert "z" * 600 not in stub.encoded


@pytest.mark.parametrize("vector", [[1.0], [1.0, np.nan, 1.0], [np.inf] * 3])
async def test_vectors_of_another_length_or_without_a_direction_are_a_failure(
    queue: EncoderQueue, stub: StubEncoder, monkeypatch: pytest.MonkeyPatch, vector: list[float]
) -> None:
    monkeypatch.setattr(stub, "forward", lambda tokens: np.float32([vector] * len(tokens)))
    with pytest.raises(EncoderFailed):
        await queue.encode(items("a"))
    assert queue.healthy
    for _ in range(2):
        with pytest.raises(EncoderFailed):
            await queue.encode(items("a"))
    assert not queue.healthy


async def test_an_idle_queue_finds_out_by_itself_that_the_model_works_again(
    queue: EncoderQueue, stub: StubEncoder, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.service.encoder.queue.TRY_SECONDS", 0.001)
    stub.fails = lambda _: True
    for _ in range(3):
        assert queue.healthy
        with pytest.raises(EncoderFailed):
            await queue.encode(items("a"))
    assert value(metrics, "turnwise_batch_failures_total") >= 3
    assert not queue.healthy
    stub.fails = lambda text: text != "Hello"
    await until(lambda: queue.healthy)
    assert "Hello" in stub.encoded


async def test_a_device_that_hangs_while_it_is_probed_is_stalled(
    queue: EncoderQueue, stub: StubEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.service.encoder.queue.TRY_SECONDS", 0.001)
    monkeypatch.setattr("turnwise.service.encoder.queue.STALLED_SECONDS", 0.0)
    stub.fails = lambda _: True
    for _ in range(3):
        with pytest.raises(EncoderFailed):
            await queue.encode(items("a"))
    stub.open.clear()
    await until(lambda: queue.stalled)
    stub.open.set()


async def test_draining_encodes_waiting_texts_and_rejects_new_ones(
    queue: EncoderQueue, stub: StubEncoder, metrics: Metrics
) -> None:
    held = await stub.hold(queue)
    (waiting,) = await admitted(queue.encode(items("a", "b"), Priority.BULK))
    draining = asyncio.create_task(queue.drain(PATIENCE))
    await asyncio.sleep(0)
    with pytest.raises(Draining):
        await queue.encode(items("c"))
    assert value(metrics, "turnwise_rejected_requests_total", reason="draining") == 1
    stub.open.set()
    await draining
    assert held.done()
    assert (await waiting).shape == (2, 3)


async def test_draining_ends_where_only_cancelled_work_is_left(
    queue: EncoderQueue, stub: StubEncoder
) -> None:
    held = await stub.hold(queue)
    (gone,) = await admitted(queue.encode(items("gone")))
    gone.cancel()
    draining = asyncio.create_task(queue.drain(PATIENCE))
    await asyncio.sleep(0)
    stub.open.set()
    async with asyncio.timeout(PATIENCE / 2):
        await draining
    await held
    assert stub.encoded == ["held"]


async def test_texts_that_draining_cannot_encode_in_time_fail(
    queue: EncoderQueue, stub: StubEncoder
) -> None:
    held = await stub.hold(queue)
    (waiting,) = await admitted(queue.encode(items("a")))
    await queue.drain(0.01)
    with pytest.raises(Draining):
        await waiting
    stub.open.set()
    await held


async def test_a_text_that_is_being_tokenized_when_draining_ends_fails(
    queue: EncoderQueue, stub: StubEncoder
) -> None:
    begun = threading.Event()
    go_on = threading.Event()

    def takes_long(_: str) -> bool:
        begun.set()
        assert go_on.wait(PATIENCE)
        return False

    stub.cannot_cut = takes_long
    waiting = asyncio.create_task(queue.encode(items("a")))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    await queue.drain(0.01)
    go_on.set()
    with pytest.raises(Draining):
        async with asyncio.timeout(PATIENCE):
            await waiting


async def test_a_queue_that_never_started_drains_at_once(stub: StubEncoder) -> None:
    encoder = cast(UtteranceEncoder, stub)
    await EncoderQueue(encoder, Metrics(), limit=1, batch_tokens=10).drain(PATIENCE)


async def test_a_model_that_cannot_encode_does_not_start(stub: StubEncoder) -> None:
    stub.fails = lambda _: True
    encoder = cast(UtteranceEncoder, stub)
    with pytest.raises(RuntimeError, match="fire"):
        await EncoderQueue(encoder, Metrics(), limit=1, batch_tokens=10).start()


async def test_encoded_texts_are_counted_by_role_and_lane(
    queue: EncoderQueue, metrics: Metrics
) -> None:
    await queue.encode([RoleText("a", Role.SECOND, Relation.OTHER)])
    await queue.encode([RoleText("a", Role.FIRST, Relation.OTHER)], Priority.IDLE)
    await queue.encode(items("a", "b"), Priority.BULK)
    name = "turnwise_encoded_texts_total"
    assert value(metrics, name, role="second", lane="critical") == 1
    assert value(metrics, name, role="first", lane="idle") == 1
    assert value(metrics, name, role="after", lane="bulk") == 2
    assert value(metrics, name, role="after", lane="critical") == 0


async def test_stages_and_batches_are_measured(queue: EncoderQueue, metrics: Metrics) -> None:
    for priority in set(Priority) - {Priority.CASCADE, Priority.RERANK}:
        await queue.encode(items("aaaa", "bbbb"), priority)
    for stage in ("tokenize", "encode"):
        assert value(metrics, "turnwise_stage_seconds_count", stage=stage) >= 1
    critical = value(metrics, "turnwise_stage_seconds_count", stage="queue")
    assert critical == 2  # one for each request of turns and lists
    assert value(metrics, "turnwise_batch_texts_sum") == 8
    assert value(metrics, "turnwise_batch_tokens_sum") == 32


class StubReader(StubEncoder):
    """As a cross-encoder: its texts are pairs, and its score is the length of both."""

    dimension = 1

    def __init__(self, encoder: StubEncoder) -> None:
        super().__init__()
        self.batches = encoder.batches  # what the device computes, in order

    def tokenize(self, items: Sequence[object]) -> list[list[int]]:
        return [list("|".join(cast(tuple[str, str], pair)).encode()) for pair in items]

    def forward(self, tokens: list[list[int]]) -> Float32:
        return super().forward(tokens)[:, :1] - 1


async def test_pairs_are_scored_after_turns_and_before_idle_work(
    queue: EncoderQueue, stub: StubEncoder, metrics: Metrics
) -> None:
    reader = StubReader(stub)
    held = await stub.hold(queue)
    pairs = [("context", "a" * length) for length in range(1, 100)]
    idle, scores, turn = await admitted(
        queue.encode(items("idle"), Priority.IDLE),
        queue.score(reader, pairs),
        queue.encode(items("turn")),
    )
    assert value(metrics, "turnwise_queue_texts", lane="rerank") == 99
    stub.open.set()
    assert (await scores).tolist() == [7 + length for length in range(1, 100)]
    await asyncio.gather(held, idle, turn)
    assert stub.batches[:2] == [["held"], ["turn"]]
    assert stub.batches[-1] == ["idle"]
    assert len(stub.batches) > 10  # small ones, between which a turn may go
    assert value(metrics, "turnwise_batch_texts_count") == 3  # the encoder's own


async def test_pairs_that_take_long_do_not_count_against_turns(
    stub: StubEncoder, metrics: Metrics
) -> None:
    async with running(stub, metrics, max_wait=0.05) as queue:
        reader = StubReader(stub)
        reader.seconds = 0.1
        await queue.score(reader, [("a", "pair")])
        held = await stub.hold(queue)
        tasks = await admitted(queue.encode(items("a")), queue.encode(items("b")))
        (first,) = await admitted(queue.score(reader, [("c", "d")]))
        with pytest.raises(Overloaded):
            await queue.score(reader, [("c", "e")])
        queue.check(Priority.TURN)
        stub.open.set()
        await asyncio.gather(held, first, *tasks)


async def test_a_re_ranker_that_fails_leaves_the_encoder_healthy(
    queue: EncoderQueue, stub: StubEncoder, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    reader = StubReader(stub)
    reader.fails = lambda text: POISON in text
    for _ in range(3):
        with pytest.raises(EncoderFailed):
            await queue.score(reader, [("context", POISON)])
    assert queue.healthy
    assert value(metrics, "turnwise_batch_failures_total") == 0
    assert {record.getMessage() for record in caplog.records} == {"the re-ranker failed"}
    with pytest.raises(EncoderFailed):
        await queue.score(reader, [("context", "fine"), ("context", POISON)])
    assert (await queue.score(reader, [("context", "fine")])).tolist() == [11]
