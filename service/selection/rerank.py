"""IoI behind the service: short lists, one after the other, on a thread of its own."""

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
"""Lists that may wait: each takes some milliseconds on a GPU, a fraction of a second or more on a
CPU."""

_log = logging.getLogger("turnwise.reranker")


class Reranking:
    """Scores short lists with the re-ranker that a request names."""

    def __init__(
        self, model: IoI | None, metrics: Metrics, *, short_list: int, timeout: float
    ) -> None:
        """Take a model.

        Args:
            model: The re-ranker; None where none is installed.
            metrics: Times the lists.
            short_list: Candidates of one list.
            timeout: Seconds after which scores are of no use any more.
        """
        self._model, self._metrics, self._timeout = model, metrics, timeout
        self.short_list = short_list
        self._thread = ThreadPoolExecutor(1, "reranker")
        self._waiting = 0

    def check(self, name: RerankerName | None, *, explain: bool) -> None:
        """See whether a request can be served.

        Raises:
            InvalidRequest: No re-ranker is installed, or its scores are to be explained.
        """
        if name and self._model is None:
            raise InvalidRequest.field(
                f"this service has no '{name}': TURNWISE_RERANKER names its folder", "rerank"
            )
        if name and explain:
            raise InvalidRequest.field(
                f"the scores of '{name}' are no sums over utterances", "explain"
            )

    async def scores(
        self, context: Sequence[str], candidates: Sequence[str], timings: Timings
    ) -> Float32:
        """Score candidates for one context.

        Args:
            context: Texts of its utterances, the newest last; there is at least one.
            candidates: C texts.
            timings: Gets the time as `rerank`.

        Returns:
            (C,), higher is better; they do not compare with the encoder's scores.

        Raises:
            Overloaded: Too many lists wait.
            DeadlineExceeded: The time is over.
            EncoderFailed: The model failed.
        """
        if self._waiting >= _WAITING:
            self._metrics.rejected_requests.labels("queue_full").inc()
            raise Overloaded(f"{self._waiting} lists wait for the re-ranker already")
        self._waiting += 1
        try:
            with timings.stage("rerank", metric="rerank"):
                return await self._scored(list(context), list(candidates))
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Wait for the list at hand, and drop the others."""
        self._thread.shutdown(cancel_futures=True)

    async def _scored(self, context: list[str], candidates: list[str]) -> Float32:
        assert self._model is not None  # noqa: S101 - `check` comes first
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
            raise EncoderFailed("the re-ranker failed on this list") from error
