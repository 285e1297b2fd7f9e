from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pytest
from numpy.testing import assert_allclose

from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import EncoderKind, Role, RoleText, context_inputs
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.observe.metrics import Metrics
from turnwise.service.selection.context import Context, Contexts
from turnwise.service.sessions.store import SessionStore

pytestmark = pytest.mark.anyio

SAID = [Utterance("user", "Hello"), Utterance("bot", "Hi there"), Utterance("user", "ok")]
ROUNDED = 2e-3
"""The loss of float16, in which Redis stores vectors."""


class PlainQueue:
    """Encodes at once."""

    def __init__(self, encoder: UtteranceEncoder) -> None:
        self._encoder = encoder

    async def encode(self, items: Sequence[RoleText], *_: object, **__: object) -> Float32:
        return self._encoder.forward(self._encoder.tokenize(items))


@pytest.fixture(params=[EncoderKind.TRIPLE, EncoderKind.HEADS])
def encoder(
    request: pytest.FixtureRequest, tiny_encoder: Callable[[EncoderKind], UtteranceEncoder]
) -> UtteranceEncoder:
    return tiny_encoder(request.param)


@pytest.fixture
def contexts(encoder: UtteranceEncoder) -> Contexts:
    queue = cast(EncoderQueue, PlainQueue(encoder))
    cached = CachedEncoder(queue, encoder, Metrics(), size=100)
    return Contexts(cast(SessionStore, None), cached, timeout=10.0)


async def test_the_newest_utterance_is_compared_with_examples_as_it_is_read(
    encoder: UtteranceEncoder, contexts: Contexts
) -> None:
    none = np.empty((0, encoder.dimension), np.float32)
    encoded = await contexts.encode_context(Context(tuple(SAID), "bot", none, none, ()))
    assert_allclose(encoded.said, encoder.encode(["ok"], Role.SAID)[0], atol=ROUNDED)
    second = encoder.encode_in_roles(context_inputs(SAID, Role.SECOND, "bot"))
    first = encoder.encode_in_roles(context_inputs(SAID, Role.FIRST, "bot"))
    assert_allclose(encoded.second, second, atol=ROUNDED)
    assert_allclose(encoded.first[: len(first)], first[: len(encoded.first)], atol=ROUNDED)


async def test_a_single_utterance_is_searched_with_and_compared_with_examples(
    encoder: UtteranceEncoder, contexts: Contexts
) -> None:
    encoded = await contexts.encode_utterance("ok")
    assert_allclose(encoded.said, encoder.encode(["ok"], Role.SAID)[0], atol=1e-5)
    second = encoder.encode_in_roles(context_inputs(SAID[-1:], Role.SECOND, "bot"))
    assert_allclose(encoded.second, second, atol=1e-5)
