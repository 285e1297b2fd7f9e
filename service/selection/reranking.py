"""Re-ranking: a cross-encoder or IoI scores short lists.

The pairs of a cross-encoder go through the encoder queue, in a lane of their own. IoI scores one
list after the other, in a thread of its own.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from turnwise.models.arrays import Float32
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.errors import EncoderFailed, InvalidRequest, ServiceError
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.threads import FairThreads
from turnwise.service.wire.fields import RerankerName

if TYPE_CHECKING:  # load torch
    from turnwise.models.rerankers.cross_encoder import CrossEncoder
    from turnwise.models.rerankers.ioi.model import IoI

_log = logging.getLogger("turnwise.reranker")


class Reranking:
    """Scores short lists with the re-ranker, if the service has one.

    Attributes:
        name: The kind of the re-ranker, as requests name it; None without one.
        model: The name of the model; None without one.
        short_list: Number of candidates of a list.
    """

    def __init__(
        self,
        model: "IoI | CrossEncoder | None",
        queue: EncoderQueue,
        metrics: Metrics,
        *,
        short_list: int,
        timeout: float,
    ) -> None:
        """Take a re-ranker.

        Args:
            model: The re-ranker; None if the service has none.
            queue: Runs the batches of a cross-encoder.
            metrics: Counts rejected lists.
            short_list: Number of candidates of a list.
            timeout: Seconds that the pairs of a cross-encoder may wait.
        """
        self.short_list = short_list
        self._scorer: _Pairs | _Lists | None = None
        if model:
            from turnwise.models.rerankers.cross_encoder import CrossEncoder  # noqa: PLC0415 - loads torch

            if isinstance(model, CrossEncoder):
                self._scorer = _Pairs(model, queue, timeout)
            else:
                self._scorer = _Lists(model, metrics)
        self.model = model.name if model else None
        self.name = self._scorer.name if self._scorer else None

    def check(self, name: RerankerName | None, *, explain: bool) -> None:
        """Reject a request that the re-ranker cannot serve.

        Raises:
            InvalidRequest: The service has no such re-ranker, or the request asks to explain its
                scores.
        """
        if name and name != self.name:
            raise InvalidRequest.field(
                f"this service has no re-ranker '{name}': set TURNWISE_RERANKER to its folder",
                "rerank",
            )
        if name and explain:
            raise InvalidRequest.field(
                f"the scores of '{name}' cannot be explained: they are not sums over utterances",
                "explain",
            )

    async def score(
        self, context: Sequence[str], candidates: Sequence[str], timings: Timings
    ) -> Float32:
        """Return the scores (C,) of candidates after a context.

        Higher is better. The scores are not comparable with those of the encoder. A cross-encoder
        reads the pairs of `CrossEncoder.pair`; its score is a logit.

        Args:
            context: Texts of at least one utterance, the newest last.
            candidates: C texts.
            timings: Records the time as `rerank`.

        Raises:
            Overloaded: Too much waits already.
            DeadlineExceeded: The timeout passed.
            EncoderFailed: The model failed.
            Draining: The service is stopping.
        """
        assert self._scorer  # noqa: S101 - `check` rejected the request
        with timings.stage("rerank", metric="rerank"):
            return await self._scorer.score(context, candidates)

    async def close(self) -> None:
        """Finish the current list of IoI and drop the waiting ones."""
        if self._scorer:
            await self._scorer.close()


class _Pairs:
    """A cross-encoder: the pairs of a list wait in the encoder queue."""

    name: RerankerName = "cross_encoder"

    def __init__(self, model: "CrossEncoder", queue: EncoderQueue, timeout: float) -> None:
        self._model = model
        self._queue = queue
        self._timeout = timeout

    async def score(self, context: Sequence[str], candidates: Sequence[str]) -> Float32:
        pairs = [self._model.pair(context, candidate) for candidate in candidates]
        return await self._queue.score(self._model, pairs, self._timeout)

    async def close(self) -> None:
        pass


class _Lists:
    """IoI: a thread scores one list after the other."""

    name: RerankerName = "ioi"

    def __init__(self, model: "IoI", metrics: Metrics) -> None:
        self._model = model
        self._thread = FairThreads(1, "re-ranker", metrics)

    async def score(self, context: Sequence[str], candidates: Sequence[str]) -> Float32:
        score = partial(self._model.scores, context, candidates)
        try:
            with self._thread.admit():
                return await asyncio.get_running_loop().run_in_executor(self._thread, score)
        except ServiceError:
            raise
        except Exception as error:
            _log.exception("the re-ranker failed")
            raise EncoderFailed("the re-ranker failed on this short list") from error

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)
