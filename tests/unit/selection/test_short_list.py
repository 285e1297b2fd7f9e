import threading
from collections.abc import Sequence
from typing import cast

import pytest

from tests.support.rerankers import tiny_ioi
from tests.support.waiting import PATIENCE
from turnwise.models.arrays import Float32
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.errors import DeadlineExceeded
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.selection.reranking import Reranking


@pytest.mark.anyio
async def test_a_short_list_that_takes_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    score = IoI.scores
    goes_on = threading.Event()

    def scored_late(ioi: IoI, *given: Sequence[str]) -> Float32:
        assert goes_on.wait(PATIENCE)
        return score(ioi, *given)

    monkeypatch.setattr(IoI, "scores", scored_late)
    metrics = Metrics()  # IoI waits in a line of its own
    none = cast(EncoderQueue, None)
    reranking = Reranking(tiny_ioi(), none, metrics, short_list=3, timeout=0.01)
    with pytest.raises(DeadlineExceeded, match=r"re-ranker did not answer within 0\.01 s"):
        await reranking.score(["a b"], ["c", "d"], Timings(metrics, "rerank"))
    goes_on.set()
    await reranking.close()
