"""Re-ranking: IoI scores short lists, one after the other, in a thread of its own."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from turnwise.models.arrays import Float32
from turnwise.models.rerankers import IoI
from turnwise.service.errors import DeadlineExceeded, EncoderFailed, InvalidRequest, Overloaded
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.wire.fields import RerankerName

_WAITING = 32
"""Most short lists that wait. Each takes some milliseconds on a GPU, but up to seconds on a CPU."""

_log = logging.getLogger("turnwise.reranker")


class Reranking:
    """Scores short lists with the re-ranker."""

    def __init__(
        self, model: IoI | None, metrics: Metrics, *, short_list: int, timeout: float
    ) -> None:
        """Start the thread.

        Args:
            model: The re-ranker; None if the service has none.
            metrics: Measures the time of each list.
            short_list: Number of candidates of a list.
            timeout: Seconds that a list may wait and take.
        """
        self._model, self._metrics, self._timeout = model, metrics, timeout
        self.short_list = short_list
        self._thread = ThreadPoolExecutor(1, "reranker")
        self._waiting = 0

    def check(self, name: RerankerName | None, *, explain: bool) -> None:
        """Reject a request that the re-ranker cannot serve.

        Raises:
            InvalidRequest: The service has no re-ranker, or the request asks to explain its scores.
        """
        if name and self._model is None:
            raise InvalidRequest.field(
                f"this service has no re-ranker '{name}': set TURNWISE_RERANKER to its folder",
                "rerank",
            )
        if name and explain:
            raise InvalidRequest.field(
                f"the scores of '{name}' cannot be explained: they are not sums over utterances",
                "explain",
            )

    async def scores(
        self, context: Sequence[str], candidates: Sequence[str], timings: Timings
    ) -> Float32:
        """Return the scores (C,) of candidates after a context.

        Higher is better. The scores are not comparable with those of the encoder.

        Args:
            context: Texts of at least one utterance, the newest last.
            candidates: C texts.
            timings: Records the time as `rerank`.

        Raises:
            Overloaded: Too many lists wait.
            DeadlineExceeded: The timeout passed.
            EncoderFailed: The model failed.
        """
        if self._waiting >= _WAITING:
            self._metrics.rejected_requests.labels("queue_full").inc()
            raise Overloaded(f"{self._waiting} short lists wait for the re-ranker already")
        self._waiting += 1
        try:
            with timings.stage("rerank", metric="rerank"):
                return await self._scored(list(context), list(candidates))
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Finish the current list and drop the waiting ones."""
        self._thread.shutdown(cancel_futures=True)

    async def _scored(self, context: list[str], candidates: list[str]) -> Float32:
        assert self._model is not None  # noqa: S101 - `check` rejected the request
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout):
                return await loop.run_in_executor(
                    self._thread, self._model.scores, context, candidates
                )
        except TimeoutError:
            raise DeadlineExceeded(f"not re-ranked within {self._timeout:g} s") from None
        except Exception as error:
            _log.exception("the re-ranker failed")
            raise EncoderFailed("the re-ranker failed on this short list") from error
