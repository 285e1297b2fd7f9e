"""Encodes [B1] of the newest utterance after the answer, while the encoder is idle.

The next turn needs it. If it comes first, or the idle work fails, that turn encodes it itself.
"""

import asyncio
from contextlib import suppress

from turnwise.models.roles import Role, context_inputs
from turnwise.service.encoder.batcher import Priority
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.errors import ServiceError
from turnwise.service.sessions.store import SessionKey, SessionStore
from turnwise.service.sessions.update import NewVectors, Update

_SECONDS = 30.0
"""Longest wait of the idle work for the encoder."""


class IdleEncoding:
    """Encodes ahead of the next turn; a model with heads needs no such work."""

    def __init__(
        self,
        sessions: SessionStore,
        encoder: CachedEncoder,
        *,
        delay: float = 0.05,
        patience: float = 1.0,
    ) -> None:
        """Take the parts.

        Args:
            sessions: Keeps the vectors.
            encoder: Encodes in its idle lane.
            delay: Seconds before the work begins. The answer leaves first, and the next turn of a
                fast client can share a batch with this work, at half its cost.
            patience: Seconds that `close` waits.
        """
        self._sessions = sessions
        self._encoder = encoder
        self._delay = delay
        self._patience = patience
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, session: SessionKey, update: Update, new: NewVectors) -> None:
        """Encode [B1] of the newest utterance of a committed update, unless `new` has it."""
        has_newest = len(new.first) > len(update.without_first)
        if has_newest or not self._encoder.kind.encodes_first:
            return
        task = asyncio.create_task(self._encode_newest(session, update))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Finish the work, but wait only briefly for it."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._patience)
            for task in late:
                task.cancel()

    async def _encode_newest(self, session: SessionKey, update: Update) -> None:
        utterances = update.utterances
        inputs = context_inputs(utterances[-1:], Role.FIRST, update.responder)
        await asyncio.sleep(self._delay)
        with suppress(ServiceError):
            vectors = await self._encoder.encode(inputs, Priority.IDLE, _SECONDS)
            await self._sessions.put_b1(
                session, update.base, update.epoch, len(utterances) - 1, vectors[0]
            )
