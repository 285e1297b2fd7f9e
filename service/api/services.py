"""The use cases and parts that the routes call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from turnwise.service.api.admission import Admission
from turnwise.service.api.keys import ApiKeys
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings

if TYPE_CHECKING:  # these load torch, which no route needs
    from turnwise.models.encoder import UtteranceEncoder
    from turnwise.service.encoder.queue import EncoderQueue
    from turnwise.service.pools import Pools
    from turnwise.service.selection.plan import Planning
    from turnwise.service.selection.rank import Ranking
    from turnwise.service.selection.sessions import Sessions
    from turnwise.service.selection.turn import Turns


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that routes need. `app.state.services` holds it."""

    settings: Settings
    metrics: Metrics
    admission: Admission
    keys: ApiKeys
    encoder: "UtteranceEncoder"
    turns: "Turns"
    sessions: "Sessions"
    ranking: "Ranking"
    planning: "Planning"
    pools: "Pools"
    queues: Sequence["EncoderQueue"]
    ping: Callable[[], Awaitable[bool]]
    """Returns whether Redis accepts writes."""
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after SIGTERM: `/readyz` fails, but the service still answers requests."""

    def check(self) -> None:
        """Reject a request before any work if its texts would wait too long for the encoder.

        Raises:
            Overloaded: The texts would wait too long.
        """
        self.queues[0].check()
