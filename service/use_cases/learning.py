"""The use case of learning: a choice adds what was said before it to the examples of a candidate.

The utterance is the newest one of the turn that offered the candidate. The redaction hook sees it
first. If learning fails, the error is logged and the feedback is kept.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from time import time

from turnwise.service.errors import ServiceError
from turnwise.service.pools import Candidate, PoolView
from turnwise.service.pools.candidate import Learned
from turnwise.service.redaction import Hook, redact_text
from turnwise.service.selection.context import Contexts
from turnwise.service.selection.deadline import deadline
from turnwise.service.sessions.store import SessionKey, SessionStore
from turnwise.service.sessions.turns import join_turns
from turnwise.service.use_cases.candidates import find_candidate
from turnwise.service.use_cases.pools import Pools
from turnwise.service.wire.fields import MAX_TEXT_CHARS
from turnwise.service.wire.pools import LearnedExample, LearnedList, Unlearned
from turnwise.service.wire.sessions import FeedbackRequest

NEAR_COPY = 0.95
"""Cosine of two examples from which one is a near copy of the other, so that it is not learned."""
MOST_LISTED = 1000
"""Most learned examples of a list."""

_log = logging.getLogger("turnwise.learning")


class Learning:
    """Adds learned examples to candidates, and lists and removes them."""

    def __init__(
        self,
        *,
        sessions: SessionStore,
        contexts: Contexts,
        pools: Pools,
        redact: Hook | None,
        timeout: float,
    ) -> None:
        """Take the parts.

        Args:
            sessions: Has the utterances.
            contexts: Encodes them, to recognise near copies.
            pools: Has the candidates.
            redact: Changes every text before it is kept; None without a hook.
            timeout: Seconds that learning may take.
        """
        self._sessions = sessions
        self._contexts = contexts
        self._pools = pools
        self._redact = redact
        self._timeout = timeout

    async def learn(
        self, session: SessionKey, turn: int, pool: str, request: FeedbackRequest
    ) -> bool | None:
        """Add the newest utterance of a turn to the learned examples of the chosen candidate.

        Args:
            session: The session.
            turn: The turn that offered the candidate.
            pool: The pool of the candidate; empty if the session does not know it any more.
            request: The feedback.

        Returns:
            Whether the examples of the candidate now have the utterance, or a near copy of it; None
            if neither the request nor the pool asks to learn.
        """
        try:
            async with deadline(self._timeout):
                if not await self._is_asked(session.namespace, pool, request):
                    return None
                if pool:
                    return await self._learn(session, turn, pool, request.candidate)
        except ServiceError as error:
            _log.warning("a candidate of pool %s learned nothing: %s", pool, error)
        except Exception:  # a hook may raise anything, and the feedback is kept already
            _log.exception("a candidate of pool %s learned nothing", pool)
        return False

    async def list_learned(self, namespace: str, pool: str, candidate: str | None) -> LearnedList:
        """Return the learned examples of a pool or a candidate, newest first.

        Raises:
            PoolNotFound: There is no such pool.
            CandidateNotFound: It lacks the candidate.
        """
        view = await self._pools.view(namespace, pool)
        if candidate is None:
            batches = [batch.candidates async for batch in view.scan()]
        else:
            batches = [[await find_candidate(view, candidate)]]
        return await asyncio.to_thread(_list_newest, batches)

    async def unlearn(
        self, namespace: str, pool: str, candidate: str, text: str | None
    ) -> Unlearned:
        """Remove the learned example with a text, or all of them, from a candidate.

        Raises:
            PoolNotFound: There is no such pool.
            CandidateNotFound: It lacks the candidate.
        """
        await find_candidate(await self._pools.view(namespace, pool), candidate)
        return await self._remove(
            namespace, pool, lambda each: text is None or each.text == text, [candidate]
        )

    async def forget(self, namespace: str, prefix: str) -> int:
        """Remove the learned examples of sessions whose ids begin with a prefix, from all pools.

        Returns:
            The number of learned examples removed.
        """

        def is_of_prefix(learned: Learned) -> bool:
            return (learned.session or "").startswith(prefix)

        removed = 0
        for pool in await self._pools.list(namespace):
            removed += (await self._remove(namespace, pool.name, is_of_prefix)).removed
        return removed

    async def _is_asked(self, namespace: str, pool: str, request: FeedbackRequest) -> bool:
        """Return whether the request, or else the pool, asks to learn from the feedback."""
        if request.learn is not None:
            return request.learn
        if not pool or request.event not in {"chosen", "edited"}:
            return False
        try:
            return (await self._pools.info(namespace, pool)).learn == "chosen"
        except ServiceError:  # a replica that cannot serve the pool keeps feedback too
            return False

    async def _learn(self, key: SessionKey, turn: int, pool: str, candidate: str) -> bool:
        session = await self._sessions.find(key)
        utterance = join_turns(session.turns[:turn])[-1]
        view = await self._pools.view(key.namespace, pool)
        if utterance.speaker == session.responder or view.encoder_name == "pairwise":
            return False
        text = utterance.text
        if self._redact:
            text = await asyncio.to_thread(redact_text, text, self._redact)
        if not text.strip() or len(text) > MAX_TEXT_CHARS:
            return False
        if await self._is_near_copy(view, candidate, text):
            return True
        example = Learned(text, time(), key.id)
        await self._pools.revise(key.namespace, pool, lambda each: each.learn(example), [candidate])
        after = await find_candidate(await self._pools.view(key.namespace, pool), candidate)
        return after.has_example(text)

    async def _is_near_copy(self, view: PoolView, candidate: str, text: str) -> bool:
        """Return whether a candidate has an example that is close to a text."""
        said = (await self._contexts.encode_utterance(text)).said
        if said is None:
            return False
        (match,) = await view.best_examples(said, [candidate])
        return match is not None and match.score >= NEAR_COPY

    async def _remove(
        self,
        namespace: str,
        pool: str,
        is_unwanted: Callable[[Learned], bool],
        ids: Sequence[str] | None = None,
    ) -> Unlearned:
        """Remove the unwanted learned examples of some candidates, or of all."""
        removed: dict[str, int] = {}

        def remove(before: Candidate) -> Candidate:
            kept = tuple(each for each in before.learned if not is_unwanted(each))
            if len(kept) == len(before.learned):
                return before
            removed[before.id] = len(before.learned) - len(kept)
            return replace(before, learned=kept)

        edited = await self._pools.revise(namespace, pool, remove, ids)
        return Unlearned(version=edited.version, removed=sum(removed.values()))


def _list_newest(batches: Sequence[Sequence[Candidate]]) -> LearnedList:
    """Return the newest learned examples of candidates. There may be millions of candidates."""
    learned = [
        LearnedExample.model_construct(candidate=each.id, text=example.text, at=example.at)
        for each in chain.from_iterable(batches)
        for example in each.learned
    ]
    newest = sorted(learned, key=lambda each: each.at, reverse=True)
    return LearnedList.model_construct(learned=newest[:MOST_LISTED])
