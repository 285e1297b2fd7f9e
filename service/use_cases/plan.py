"""The use case of planning: goals in the order in which a dialogue can reach them."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.planning import (
    PULL_UTTERANCES,
    Plan,
    chain_links,
    plan_chain,
    plan_greedy,
    pull_query,
)
from turnwise.models.roles import Role, RoleText, candidate_inputs, relation_to
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.selection.context import Context, Contexts, empty_context
from turnwise.service.selection.one_by_one import OneByOne
from turnwise.service.wire.planning import PlanAnswer, PlannedOrder, PlanRequest


class Planning:
    """Orders goals as CCL section 6 does."""

    def __init__(
        self, contexts: Contexts, encoder: CachedEncoder, metrics: Metrics, thread: OneByOne
    ) -> None:
        """Take the parts; the thread computes the orders, of many goals in a second."""
        self._contexts, self._encoder, self._metrics = contexts, encoder, metrics
        self._thread = thread

    async def plan(self, namespace: str, request: PlanRequest) -> PlanAnswer:
        """Order goals.

        Raises:
            SessionNotFound: There is no such session.
            InvalidRequest: The method needs a context, and the request has none.
            Conflict: The method needs a context, and the session has no utterance.
            ServiceError: Reading or encoding failed, or too many plans wait.
        """
        timings = Timings(self._metrics, "encode", "state", "plan")
        with timings.stage("state"):
            context = await self._contexts.read(namespace, request)
        if request.method != "chain" and not context.utterances:
            raise empty_context(request)
        with timings.stage("encode"):
            links, pull = await self._encode(request, context)
        with timings.stage("plan", metric="plan"):
            plan = await self._thread.run(partial(_plan, request, links, pull))
        names = request.names
        orders = [
            PlannedOrder(order=[names[goal] for goal in order.order], score=order.score)
            for order in plan.orders
        ]
        return PlanAnswer(
            orders=orders,
            next_goal=orders[0].order[0],
            method=request.method,
            optimal=plan.optimal,
            model=self._encoder.name,
            timings_ms=timings.milliseconds(),
        )

    async def _encode(self, request: PlanRequest, context: Context) -> tuple[Float32, Float32]:
        """Return cos(b_x, a_y) of every two goals (n, n), and the pull P of each goal (n,).

        Texts that the method does not need are not encoded: with `greedy`, the first is (n, 0).
        """
        texts = [goal.text for goal in request.goals]
        speakers = [goal.speaker or context.responder for goal in request.goals]
        targets = () if request.method == "greedy" else speakers
        inputs = candidate_inputs(texts)
        inputs += [
            RoleText(text, Role.SECOND, relation_to(speaker, target))
            for target in targets
            for text, speaker in zip(texts, speakers, strict=True)
        ]
        vectors = await self._contexts.encode_texts(inputs)
        n, d = len(texts), self._encoder.dimension
        after, before = vectors[:n], vectors[n:].reshape(-1, n, d)  # before[y, x] is b_x toward y
        links = chain_links(before.swapaxes(0, 1), after[: len(before)])
        pull = np.zeros(n, np.float32)
        if request.method != "chain":
            pull = await self._pull(context, speakers, after)
        return links, pull

    async def _pull(self, context: Context, speakers: Sequence[str], after: Float32) -> Float32:
        """Return the pull P(g) (n,), with the context relative to the speaker of g."""
        queries = {}
        for speaker in dict.fromkeys(speakers):
            newest = await self._contexts.encode_newest(context, speaker, PULL_UTTERANCES)
            queries[speaker] = pull_query(newest)
        pulls = [queries[speaker] @ a for speaker, a in zip(speakers, after, strict=True)]
        return np.array(pulls, np.float32)


def _plan(request: PlanRequest, links: Float32, pull: Float32) -> Plan:
    if request.method == "greedy":
        return plan_greedy(pull)
    return plan_chain(links, pull if request.method == "chain_curved" else None, request.top)
