"""The running parts of the service, as the HTTP routes find them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings

if TYPE_CHECKING:  # loads torch, of which no route needs to know
    from turnwise.models.encoder import UtteranceEncoder
    from turnwise.service.encoder.queue import EncoderQueue
    from turnwise.service.pools import Pools
    from turnwise.service.selection.plan import Planning
    from turnwise.service.selection.rank import Ranking
    from turnwise.service.selection.sessions import Sessions
    from turnwise.service.selection.turn import Turns


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that a route may need; it lives in `app.state.services`."""

    settings: Settings
    metrics: Metrics
    encoder: "UtteranceEncoder"
    turns: "Turns"
    sessions: "Sessions"
    ranking: "Ranking"
    planning: "Planning"
    pools: "Pools"
    queues: Sequence["EncoderQueue"]
    ping: Callable[[], Awaitable[object]]
    """Asks Redis to keep something; raises where it does not."""
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set from SIGTERM on: `/readyz` says no, while requests are still answered."""

    def check(self) -> None:
        """See whether a turn would be encoded soon, before anything is done for it.

        Raises:
            Overloaded: It would not.
        """
        self.queues[0].check()
