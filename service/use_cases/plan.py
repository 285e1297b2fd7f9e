"""The use case of planning: goals in the order in which a dialogue can reach them."""

import asyncio
from collections.abc import Sequence
from functools import partial

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.planning import (
    PULL_UTTERANCES,
    Order,
    chain_links,
    plan_chain,
    plan_greedy,
    published_pull_query,
    pull_query,
)
from turnwise.models.roles import Role, RoleText, candidate_inputs, relation_to
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.selection.context import Context, Contexts, empty_context
from turnwise.service.threads import FairThreads
from turnwise.service.wire.planning import (
    WITHOUT_CONTEXT,
    Method,
    PlanAnswer,
    PlannedOrder,
    PlanRequest,
)


class Planning:
    """Orders goals as CCL does, or with a pull of our own (`models.planning`)."""

    def __init__(self, contexts: Contexts, metrics: Metrics, planner: FairThreads) -> None:
        """Take the parts. The planner is the thread that orders goals, in up to 0.1 s."""
        self._contexts = contexts
        self._metrics = metrics
        self._planner = planner

    async def plan(self, namespace: str, request: PlanRequest) -> PlanAnswer:
        """Order goals.

        Raises:
            SessionNotFound: There is no such session.
            InvalidRequest: The method needs a context, and the request has none.
            Conflict: The method needs a context, and the session has no utterance.
            ServiceError: Reading or encoding failed.
        """
        timings = Timings(self._metrics, "encode", "state", "plan")
        orders = await self._order_goals(namespace, request, timings)
        names = request.names
        planned = [
            PlannedOrder(order=[names[goal] for goal in order.order], score=order.score)
            for order in orders
        ]
        return PlanAnswer(
            orders=planned,
            next_goal=planned[0].order[0],
            method=request.method,
            optimal=True,
            model=self._contexts.model,
            timings_ms=timings.milliseconds(),
        )

    async def _order_goals(
        self, namespace: str, request: PlanRequest, timings: Timings
    ) -> Sequence[Order]:
        with timings.stage("state"):
            context = await self._contexts.read(namespace, request)
        reads_context = request.method not in WITHOUT_CONTEXT
        if reads_context and not context.utterances:
            raise empty_context(request)
        texts = [goal.text for goal in request.goals]
        speakers = [context.name_speaker(goal.speaker) for goal in request.goals]
        with timings.stage("encode"):
            after, before = await self._encode_goals(texts, speakers, request.method)
            pull = None
            if reads_context:
                published = request.method in {"iec_cu", "gc"}
                pull = await self._compute_pull(context, speakers, after, published=published)
        with timings.stage("plan", metric="plan"):
            find_orders = partial(_find_orders, before, after, pull, request.top)
            return await asyncio.get_running_loop().run_in_executor(self._planner, find_orders)

    async def _encode_goals(
        self, texts: Sequence[str], speakers: Sequence[str], method: Method
    ) -> tuple[Float32, Float32 | None]:
        """Return [AFTER] of the goals (n, d), and [B2] (n, n, d) if the method links goals.

        [B2] at [x, y] is goal x in its relation to the speaker of goal y. A goal has at most two
        relations, and is encoded once in each.
        """
        n = len(texts)
        candidates = candidate_inputs(texts)
        if method in {"greedy", "gc"}:
            return await self._contexts.encode_texts(candidates), None
        links = [
            RoleText(text, Role.SECOND, relation_to(speaker, target))
            for text, speaker in zip(texts, speakers, strict=True)
            for target in speakers
        ]
        distinct = list(dict.fromkeys(links))
        index_of = {link: index for index, link in enumerate(distinct)}
        vectors = await self._contexts.encode_texts(candidates + distinct)
        after = vectors[:n]
        before = vectors[n:]
        return after, before[[index_of[link] for link in links]].reshape(n, n, -1)

    async def _compute_pull(
        self, context: Context, speakers: Sequence[str], after: Float32, *, published: bool
    ) -> Float32:
        """Return the pull of each goal (n,), with the context relative to the goal's speaker.

        Args:
            context: The context.
            speakers: The speakers of the n goals.
            after: (n, d) [AFTER] of the goals.
            published: Whether to compute the pull of CCL, not ours.
        """
        count = len(context.utterances) if published else PULL_UTTERANCES
        make_query = published_pull_query if published else pull_query
        queries = {}
        for speaker in dict.fromkeys(speakers):
            newest = await self._contexts.encode_second(context, speaker, count)
            queries[speaker] = make_query(newest)
        pulls = [queries[speaker] @ goal for speaker, goal in zip(speakers, after, strict=True)]
        return np.array(pulls, np.float32)


def _find_orders(
    before: Float32 | None, after: Float32, pull: Float32 | None, top: int
) -> Sequence[Order]:
    """Return the best orders: by the links of goals, by their pulls, or by both.

    Args:
        before: (n, n, d) [B2] of the goals; None if links do not count.
        after: (n, d) [AFTER] of the goals.
        pull: (n,) the pulls; None if they do not count.
        top: Most orders to return.
    """
    if before is None:
        assert pull is not None  # every method has at least one of the two
        return [plan_greedy(pull)]
    return plan_chain(chain_links(before, after), pull, top)
