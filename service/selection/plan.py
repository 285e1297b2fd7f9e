"""The use case of planning: goals in the order in which a dialogue can reach them."""

import asyncio
from collections.abc import Sequence

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.planning import Plan, chain_links, plan_chain, plan_greedy
from turnwise.models.roles import Role, RoleText, relation_to
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.queue import Priority
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.timings import Timings
from turnwise.service.selection.context import Histories, History, nothing_said
from turnwise.service.wire.planning import PlanAnswer, PlannedOrder, PlanRequest


class Planning:
    """Orders goals as CCL section 6 does."""

    def __init__(
        self, histories: Histories, encoder: CachedEncoder, metrics: Metrics, *, timeout: float
    ) -> None:
        self._histories, self._encoder = histories, encoder
        self._metrics, self._timeout = metrics, timeout

    async def plan(self, namespace: str, request: PlanRequest) -> PlanAnswer:
        """Order goals.

        Raises:
            SessionNotFound: There is no such session.
            InvalidRequest: The method needs a history, and there is none.
            Conflict: The method needs one, and the session has no utterance.
            ServiceError: What reading and encoding raise.
        """
        timings = Timings("encode", "state", "plan")
        with timings.stage("state"):
            history = await self._histories.find(namespace, request)
        if request.method != "chain" and not history.utterances:
            raise nothing_said(request)
        with timings.stage("encode"):
            links, pull = await self._encode(request, history)
        with timings.stage("plan"), self._metrics.stage("plan"):
            plan = await asyncio.to_thread(_plan, request, links, pull)
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

    async def _encode(self, request: PlanRequest, history: History) -> tuple[Float32, Float32]:
        """Return cos(b_x, a_y) of each two goals (n, n), and the pull P of each goal (n,).

        What the method does not read is not encoded: of greedy curving the first is (n, 0).
        """
        texts = [goal.text for goal in request.goals]
        speakers = [goal.speaker or history.responder for goal in request.goals]
        targets = () if request.method == "greedy" else speakers
        inputs = [RoleText(text, Role.AFTER) for text in texts]
        inputs += [
            RoleText(text, Role.SECOND, relation_to(speaker, target))
            for target in targets
            for text, speaker in zip(texts, speakers, strict=True)
        ]
        vectors = await self._encoder.encode(inputs, Priority.LIST, self._timeout)
        n, d = len(texts), self._encoder.dimension
        after, before = vectors[:n], vectors[n:].reshape(-1, n, d)  # before[y, x] is b_x toward y
        links = chain_links(before.swapaxes(0, 1), after[: len(before)])
        pull = np.zeros(n, np.float32)
        if request.method != "chain":
            pull = await self._pull(history, speakers, after)
        return links, pull

    async def _pull(self, history: History, speakers: Sequence[str], after: Float32) -> Float32:
        """Return P(g) = Σ_i cos(b_i, a_g), b_i with its relation to the speaker of g."""
        queries = {}
        for speaker in dict.fromkeys(speakers):
            second = await self._histories.second(history, speaker)
            queries[speaker] = second.sum(axis=0)
        summed = np.stack([queries[speaker] for speaker in speakers])
        return np.asarray(np.einsum("gd,gd->g", summed, after))


def _plan(request: PlanRequest, links: Float32, pull: Float32) -> Plan:
    if request.method == "greedy":
        return plan_greedy(pull)
    return plan_chain(links, pull if request.method == "chain_curved" else None, request.top)
