"""Re-ranking: a cross-encoder or IoI scores short lists, or the first hits of a search.

The pairs of a cross-encoder go through the encoder queue, in a lane of their own. IoI scores one
list after the other, in a thread of its own.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from turnwise.models.arrays import Float32
from turnwise.models.data import Utterance
from turnwise.models.rerankers.cascade import Cascade
from turnwise.models.rerankers.pairs import PairReranker
from turnwise.service.encoder.batcher import Priority
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.errors import EncoderFailed, InvalidRequest, ServiceError
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.threads import FairThreads
from turnwise.service.wire.fields import Rerank, RerankerName

if TYPE_CHECKING:  # loads torch
    from turnwise.models.rerankers.ioi.model import IoI

CASCADE_SECONDS = 1.0
"""Most seconds that a turn waits for the model's own re-ranker, or half of its timeout if that is
less."""

_log = logging.getLogger("turnwise.reranker")


class ShortList(NamedTuple):
    """A context and candidates to score.

    Attributes:
        utterances: At least one utterance, the newest last.
        candidates: C texts.
        speakers: The speaker who would say each of them.
    """

    utterances: Sequence[Utterance]
    candidates: Sequence[str]
    speakers: Sequence[str]


class Reranking:
    """Scores short lists with the re-rankers of the service.

    Attributes:
        name: The kind of the re-ranker of the settings, as requests name it; None without one.
        model: The name of that re-ranker; None without one.
        cascade: When the model's own re-ranker reads hits, and which; None if it has none.
        short_list: Number of candidates of a list.
    """

    def __init__(
        self,
        model: "IoI | PairReranker | None",
        own: tuple[PairReranker, Cascade] | None,
        queue: EncoderQueue,
        metrics: Metrics,
        *,
        short_list: int,
        timeout: float,
    ) -> None:
        """Take the re-rankers.

        Args:
            model: The re-ranker of the settings; None without one.
            own: The model's own re-ranker; None if it has none.
            queue: Runs the batches of cross-encoders.
            metrics: Counts rejected lists.
            short_list: Number of candidates of a list.
            timeout: Seconds that the pairs of a cross-encoder may wait.
        """
        self.short_list = short_list
        self.name: RerankerName | None = None
        self.model = model.name if model else None
        self.cascade: Cascade | None = None
        self._scorers: dict[RerankerName, _PairScorer | _ListScorer] = {}
        self._own: _PairScorer | None = None
        if own:
            reranker, self.cascade = own
            cascade_timeout = min(CASCADE_SECONDS, timeout / 2)
            self._own = _PairScorer(reranker, queue, cascade_timeout, Priority.CASCADE)
            self._scorers["cross_encoder"] = _PairScorer(reranker, queue, timeout, Priority.RERANK)
        if isinstance(model, PairReranker):
            self.name = "cross_encoder"
            self._scorers[self.name] = _PairScorer(model, queue, timeout, Priority.RERANK)
        elif model:
            self.name = "ioi"
            self._scorers[self.name] = _ListScorer(model, metrics)

    def check(self, name: Rerank | None, *, explain: bool) -> None:
        """Reject a request that the re-rankers cannot serve.

        Raises:
            InvalidRequest: The service has no such re-ranker, or the request asks to explain its
                scores.
        """
        if name is None or name == "auto":
            return
        if name not in self._scorers:
            raise InvalidRequest.field(
                f"this service has no re-ranker '{name}': set TURNWISE_RERANKER to its folder",
                "rerank",
            )
        if explain:
            raise InvalidRequest.field(
                f"the scores of '{name}' cannot be explained: they are not sums over utterances",
                "explain",
            )

    async def score(self, name: RerankerName, short_list: ShortList, timings: Timings) -> Float32:
        """Return the scores (C,) of candidates after a context by the re-ranker of a request.

        Higher is better. The scores are not comparable with those of the encoder. The score of a
        cross-encoder is a logit.

        Args:
            name: A name that `check` accepted.
            short_list: The context and C candidates.
            timings: Records the time as `rerank`.

        Raises:
            Overloaded: Too much waits already.
            DeadlineExceeded: The timeout passed.
            EncoderFailed: The model failed.
            Draining: The service is stopping.
        """
        with timings.stage("rerank", metric="rerank"):
            return await self._scorers[name].score(short_list)

    async def try_own_reranker(self, short_list: ShortList, timings: Timings) -> Float32 | None:
        """Return the logits (k,) of the first k hits by the model's own re-ranker.

        Args:
            short_list: The context and k hits.
            timings: Records the time as `rerank`.

        Returns:
            None if the re-ranker is overloaded, too late or fails. The turn then keeps the order
            of the first stage.
        """
        assert self._own  # there is a cascade
        try:
            with timings.stage("rerank", metric="rerank"):
                return await self._own.score(short_list)
        except ServiceError as error:
            _log.warning("a turn is answered without the re-ranker: %s", error)
            return None

    async def close(self) -> None:
        """Finish the current list of IoI and drop the waiting ones."""
        for scorer in self._scorers.values():
            await scorer.close()


class _PairScorer:
    """A cross-encoder: the pairs of a list wait in the encoder queue."""

    def __init__(
        self, model: PairReranker, queue: EncoderQueue, timeout: float, priority: Priority
    ) -> None:
        self._model = model
        self._queue = queue
        self._timeout = timeout
        self._priority = priority

    async def score(self, short_list: ShortList) -> Float32:
        utterances, candidates, speakers = short_list
        contexts = {each: self._model.read_context(utterances, each) for each in set(speakers)}
        pairs = [
            self._model.pair(contexts[speaker], candidate)
            for candidate, speaker in zip(candidates, speakers, strict=True)
        ]
        return await self._queue.score(self._model, pairs, self._timeout, self._priority)

    async def close(self) -> None:
        pass


class _ListScorer:
    """IoI: a thread scores one list after the other."""

    def __init__(self, model: "IoI", metrics: Metrics) -> None:
        self._model = model
        self._thread = FairThreads(1, "re-ranker", metrics)

    async def score(self, short_list: ShortList) -> Float32:
        texts = [utterance.text for utterance in short_list.utterances]
        score = partial(self._model.scores, texts, short_list.candidates)
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
