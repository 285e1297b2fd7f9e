from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.waiting import in_event_loop
from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText
from turnwise.service.encoder.batcher import Priority
from turnwise.service.encoder.cache import HEADS_AT_ONCE, CachedEncoder
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.errors import EncoderFailed
from turnwise.service.observe.metrics import Metrics

pytestmark = pytest.mark.anyio

Encoder = Callable[[EncoderKind], UtteranceEncoder]


class RecordingQueue:
    """Encodes without a queue, and records the texts."""

    def __init__(self, encoder: UtteranceEncoder) -> None:
        self.encoder = encoder
        self.asked: list[RoleText] = []
        self.priorities: list[Priority] = []
        self.given: list[Float32] = []

    async def encode(
        self,
        items: Sequence[RoleText],
        priority: Priority,
        timeout: float | None,
        *,
        admitted: bool = False,
    ) -> Float32:
        del timeout, admitted
        self.asked += items
        self.priorities.append(priority)
        self.given.append(self.encoder.forward(self.encoder.tokenize(items)))
        return self.given[-1]


class FailingQueue(RecordingQueue):
    async def encode(
        self, items: Sequence[RoleText], *_: object, admitted: bool = False
    ) -> Float32:
        self.asked += items
        raise EncoderFailed("no")


class Parts:
    def __init__(
        self,
        encoder: UtteranceEncoder,
        size: int = 100,
        queue: type[RecordingQueue] = RecordingQueue,
    ) -> None:
        self.queue = queue(encoder)
        self.metrics = Metrics()
        self.cached = CachedEncoder(
            cast(EncoderQueue, self.queue), encoder, self.metrics, size=size
        )

    @property
    def hits(self) -> float | None:
        return self.metrics.registry.get_sample_value("turnwise_vector_cache_hits_total")


@pytest.fixture
def parts(tiny_encoder: Encoder) -> Parts:
    return Parts(tiny_encoder(EncoderKind.TRIPLE))


def after(*texts: str) -> list[RoleText]:
    return [RoleText(text, Role.AFTER) for text in texts]


async def test_one_text_has_a_vector_for_each_role_and_relation(parts: Parts) -> None:
    items = [
        RoleText("a", role, relation) for role in (Role.FIRST, Role.SECOND) for relation in Relation
    ]
    vectors = await parts.cached.encode([*items, *after("a")])
    assert len(np.unique(vectors.round(4), axis=0)) == 5


async def test_roles_that_the_model_does_not_tell_apart_share_a_vector(
    tiny_encoder: Encoder,
) -> None:
    parts = Parts(tiny_encoder(EncoderKind.SINGLE))
    await parts.cached.encode([RoleText("a", Role.FIRST, Relation.SAME)])
    await parts.cached.encode([RoleText("a", Role.SECOND, Relation.OTHER), *after("a")])
    assert len(parts.queue.asked) == 1


@pytest.mark.parametrize(("count", "in_loop"), [(HEADS_AT_ONCE, True), (HEADS_AT_ONCE + 1, False)])
async def test_heads_read_many_vectors_beside_the_event_loop(
    tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch, *, count: int, in_loop: bool
) -> None:
    encoder = tiny_encoder(EncoderKind.HEADS)
    seen = list[bool]()
    in_roles = encoder.in_roles

    def noted(vectors: Float32, items: Sequence[RoleText]) -> Float32:
        seen.append(in_event_loop())
        return in_roles(vectors, items)

    monkeypatch.setattr(encoder, "in_roles", noted)
    said = [RoleText(f"text {n}", Role.FIRST, Relation.SAME) for n in range(count)]
    got = await Parts(encoder).cached.encode([*said, *after("reply")])
    assert seen == [in_loop]
    wanted = encoder.encode_in_roles([*said, *after("reply")])
    assert got == pytest.approx(wanted, abs=1e-5)


async def test_heads_estimate_a_candidate_once_for_each_relation(
    tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny_encoder(EncoderKind.HEADS)
    seen = list[RoleText]()
    parts = Parts(encoder)
    in_roles = encoder.in_roles

    def noted(vectors: Float32, items: Sequence[RoleText]) -> Float32:
        seen.extend(items)
        return in_roles(vectors, items)

    monkeypatch.setattr(encoder, "in_roles", noted)
    same, other = ([RoleText(text, Role.SUPPOSED, of) for text in "abc"] for of in Relation)
    read = encoder.encode(list("abc"), Role.AFTER)
    for items, new in ((same[:2], 2), (same, 1), (same[::-1], 0), (other, 3)):
        seen.clear()
        of_items = read[["abc".index(item.text) for item in items]]
        got = await parts.cached.estimate(of_items, items)
        assert got == pytest.approx(in_roles(of_items, items), abs=1e-6)
        assert len(seen) == new
    assert parts.queue.asked == []


async def test_a_turn_reads_only_its_newest_utterance_by_a_head(
    tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny_encoder(EncoderKind.HEADS)
    cached = Parts(encoder).cached
    said = [RoleText(text, Role.FIRST, Relation.SAME) for text in "abc"]
    read = encoder.encode(list("abc"), Role.SECOND, Relation.OTHER)
    wanted = encoder.in_roles(read, said)
    cached.in_roles(read[:2], said[:2])
    seen = list[Sequence[RoleText]]()
    in_roles = encoder.in_roles

    def noted(vectors: Float32, items: Sequence[RoleText]) -> Float32:
        seen.append(items)
        return in_roles(vectors, items)

    monkeypatch.setattr(encoder, "in_roles", noted)
    assert cached.in_roles(read, said) == pytest.approx(wanted, abs=1e-6)
    assert seen == [said[2:]]


async def test_uploads_pass_the_cache_by(parts: Parts) -> None:
    priorities = [Priority.BULK, Priority.BULK, Priority.IDLE]
    for priority in priorities:
        await parts.cached.encode(after("a"), priority)
    assert parts.queue.asked == after("a", "a", "a")
    assert parts.queue.priorities == priorities
    assert parts.hits == 0


async def test_a_failure_leaves_nothing_behind(tiny_encoder: Encoder) -> None:
    parts = Parts(tiny_encoder(EncoderKind.TRIPLE), queue=FailingQueue)
    for _ in range(2):
        with pytest.raises(EncoderFailed):
            await parts.cached.encode(after("a"))
    assert parts.queue.asked == after("a", "a")
    assert parts.hits == 0


async def test_a_caller_may_change_its_vectors(parts: Parts) -> None:
    got = await parts.cached.encode(after("a"))
    wanted = got.copy()
    got[:] = 0
    assert (await parts.cached.encode(after("a"))).tolist() == wanted.tolist()


async def test_nothing_of_the_queues_answer_is_kept(parts: Parts) -> None:
    wanted = (await parts.cached.encode(after("a", "b"))).copy()
    parts.queue.given[0][:] = 0
    assert (await parts.cached.encode(after("a", "b"))).tolist() == wanted.tolist()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=6), max_size=8), st.integers(0, 4))
async def test_the_vectors_that_were_used_last_are_not_computed_again(
    tiny_encoder: Encoder, calls: list[list[str]], size: int
) -> None:
    encoder = tiny_encoder(EncoderKind.TRIPLE)
    parts = Parts(encoder, size=size)
    kept: list[str] = []
    asked: list[str] = []
    hits = 0
    for texts in calls:
        got = await parts.cached.encode(after(*texts))
        assert got == pytest.approx(encoder.encode(texts, Role.AFTER), abs=1e-5)
        hits += sum(text in kept for text in texts)
        used = [text for text in dict.fromkeys(texts) if text in kept]
        missing = [text for text in dict.fromkeys(texts) if text not in kept]
        asked += missing
        recent = [text for text in kept if text not in texts] + used + missing
        kept = recent[len(recent) - min(size, len(recent)) :]
    assert parts.queue.asked == after(*asked)
    assert parts.hits == hits
