from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.rerankers import save_tiny_pairwise
from tests.support.waiting import PATIENCE
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.roles import EncoderKind
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Candidate
from turnwise.service.pools.encoding import draw_contexts
from turnwise.service.selection.pairwise import Pairwise

pytestmark = pytest.mark.anyio


async def test_recall_is_measured_on_contexts_of_a_pool_s_own_texts(
    tmp_path: Path, tiny_encoder_folder: Callable[[EncoderKind], Path]
) -> None:
    folder = save_tiny_pairwise(tmp_path, tiny_encoder_folder(EncoderKind.SINGLE))
    model = PairwiseModel.load(folder, "cpu")
    metrics = Metrics()
    queue = EncoderQueue(model.encoder, metrics, limit=1000, batch_tokens=10_000)
    await queue.start()
    cached = CachedEncoder(queue, model.encoder, metrics, size=10)
    contexts = draw_contexts([Candidate.of(f"Reply {number}.") for number in range(20)])
    found = await Pairwise(model, cached, timeout=PATIENCE).queries(contexts)
    await queue.drain(PATIENCE)
    assert found == pytest.approx(model.encode_contexts(contexts), abs=1e-5)
