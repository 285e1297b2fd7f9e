"""The use case of a search: the candidates of a pool that best follow one text."""

from turnwise.models.data import Utterance
from turnwise.models.scores import Aggregation
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.pools import Filter
from turnwise.service.selection.context import Contexts
from turnwise.service.selection.pipeline import Pipeline, as_selected
from turnwise.service.selection.repeats import NO_REPEATS
from turnwise.service.selection.request import Options, SelectionRequest
from turnwise.service.use_cases.pools import Pools
from turnwise.service.wire.fields import USER
from turnwise.service.wire.pools import SearchAnswer, SearchRequest


class Search:
    """Searches a pool without a session."""

    def __init__(
        self, contexts: Contexts, pools: Pools, pipeline: Pipeline, metrics: Metrics
    ) -> None:
        self._contexts = contexts
        self._pools = pools
        self._pipeline = pipeline
        self._metrics = metrics

    async def search(self, namespace: str, pool: str, request: SearchRequest) -> SearchAnswer:
        """Return the best replies to a text of another speaker.

        Raises:
            InvalidRequest: The filter makes no sense.
            PoolNotFound: There is no such pool.
        """
        where = Filter.of(request.where)
        options = Options(Aggregation(), where, repeat=True, wordings="all", slots=request.slots)
        view = await self._pools.view(namespace, pool)
        if view.encoder_name == "pairwise":
            context = self._contexts.without_vectors([Utterance(USER, request.text)])
        else:
            context = await self._contexts.encode_utterance(request.text)
        timings = Timings(self._metrics, "encode", "retrieve", "rerank")
        selection = SelectionRequest(view, context, NO_REPEATS, options, timings)
        found = await self._pipeline.retrieve(
            selection, count=request.top_k, answers=1, confident=False
        )
        scored = await self._pipeline.score(selection, found)
        candidates = [
            as_selected(hit, scored, index, request.slots) for index, hit in enumerate(found.hits)
        ]
        return SearchAnswer.model_construct(candidates=candidates, warnings=list(found.warnings))
