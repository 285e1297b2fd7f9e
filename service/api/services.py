"""The use cases and components of a running replica, as one object that routes depend on."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

from turnwise.service.api.access.admission import Admission
from turnwise.service.api.access.concurrency import ConcurrencyLimit
from turnwise.service.api.access.keys import ApiKeys
from turnwise.service.encoder.batcher import Priority
from turnwise.service.encoder.model import Encoder
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.observe.descriptors import descriptors_left
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import FollowedPools, PoolFollower
from turnwise.service.settings import Settings
from turnwise.service.threads import FairThreads
from turnwise.service.use_cases.candidates import Candidates
from turnwise.service.use_cases.chat import Chat
from turnwise.service.use_cases.learning import Learning
from turnwise.service.use_cases.plan import Planning
from turnwise.service.use_cases.pools import Pools
from turnwise.service.use_cases.rank import Ranking
from turnwise.service.use_cases.rerank import DocumentRanking
from turnwise.service.use_cases.search import Search
from turnwise.service.use_cases.sessions import Sessions
from turnwise.service.use_cases.turn import Turns
from turnwise.service.use_cases.upload_checks import UploadChecks

Check = Callable[[], Awaitable[bool]]


def once_a_second(check: Check) -> Check:
    """Return a check that runs once a second at most; callers in between share the last result."""
    lock = asyncio.Lock()
    passed = False
    again = 0.0

    async def checked() -> bool:
        nonlocal passed, again
        async with lock:  # callers that wait here share the answer
            if (now := monotonic()) >= again:
                passed = await check()
                again = now + 1.0
            return passed

    return checked


class SharedScrapes:
    """Writes metrics as text in a thread, one at a time. Requests that wait share the next text."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._texts: dict[str, tuple[float, bytes]] = {}
        """The newest text of each content type, and when it was begun."""

    async def get(self, content_type: str, write: Callable[[], bytes]) -> bytes:
        """Return a text that was begun after this call."""
        asked_at = monotonic()
        async with self._lock:
            begun_at, text = self._texts.get(content_type, (-math.inf, b""))
            if begun_at < asked_at:
                begun_at = monotonic()
                text = await asyncio.to_thread(write)
                self._texts[content_type] = begun_at, text
            return text


@dataclass(frozen=True, kw_only=True)
class EncoderServices:
    """The parts that the routes of every service need; `app.state.services` holds them."""

    settings: Settings
    metrics: Metrics
    admission: Admission
    concurrency: Mapping[Priority, ConcurrencyLimit]
    keys: ApiKeys
    encoder: Encoder
    queues: Sequence[EncoderQueue]
    bodies: FairThreads
    """The threads that parse large bodies and write large answers."""
    scrapes: SharedScrapes = field(default_factory=SharedScrapes)
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after SIGTERM: `/readyz` fails, but the service still answers requests."""

    async def checks(self) -> dict[str, bool]:
        """Return the checks of `/readyz`, and whether each passes."""
        return {
            "descriptors": descriptors_left(),
            "model": all(queue.healthy for queue in self.queues),
            "encoder": not any(queue.stalled for queue in self.queues),
            "not_draining": not self.draining.is_set(),
        }

    def warnings(self) -> list[str]:
        """Return what is wrong although every check passes."""
        return []


@dataclass(frozen=True, kw_only=True)
class Services(EncoderServices):
    """The parts that the routes of a replica need."""

    uploads: FairThreads
    """The threads that read candidates. It may take seconds, for which bodies must not wait."""
    turns: Turns
    chat: Chat
    sessions: Sessions
    learning: Learning
    ranking: Ranking
    document_ranking: DocumentRanking
    search: Search
    planning: Planning
    pools: Pools
    candidates: Candidates
    upload_checks: UploadChecks
    followed_pools: FollowedPools
    pool_follower: PoolFollower
    redis_answers: Check
    """Returns whether Redis accepts writes."""
    store_answers: Check | None = None
    """Returns whether the candidate store answers; None without one."""

    async def checks(self) -> dict[str, bool]:
        """Return the checks of `/readyz`, and whether each passes."""
        own = {"pools": self.pool_follower.ready, "redis": await self.redis_answers()}
        if self.store_answers:
            own["store"] = await self.store_answers()
        return own | await super().checks()

    def warnings(self) -> list[str]:
        """Return the pools that are missing, if there are any.

        They fail no check: then no replica would be ready, turns on other pools would fail as well,
        and nobody could upload the missing pools again.
        """
        warning = self.followed_pools.missing.warning
        return [warning] if warning else []
