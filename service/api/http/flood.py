"""Slows down a flood of requests that the service refuses, or answers without a key.

Such requests cost little, but a client may send them as fast as the answers come. Beyond a rate,
they are no longer logged, and their answers wait. A client that waits for its answers then sends
fewer requests, and the others keep the processor.
"""

import logging
from time import monotonic

from starlette.types import Scope

from turnwise.service.errors import Forbidden, Overloaded, Unauthenticated

RATE = 100
"""Requests a second that are logged, and answered at once."""
PAUSE_SECONDS = 0.2
"""How long the answers beyond them wait."""

_REFUSALS = {Unauthenticated.status, Forbidden.status, Overloaded.status}

_log = logging.getLogger("turnwise.access")


class Flood:
    """Counts the requests of each second that were refused, or whose route takes no key."""

    def __init__(self, rate: int = RATE) -> None:
        self._rate = rate
        self._second = 0
        self._count = 0

    def exceeds(self, scope: Scope, status: int) -> bool:
        """Count a request whose answer begins; return whether it is beyond the rate.

        Args:
            scope: The request. Its state holds the caller if the route takes a key.
            status: The status of the answer.
        """
        if status not in _REFUSALS and "caller" in scope.get("state", ()):
            return False
        if (second := int(monotonic())) != self._second:
            if self._count > self._rate:
                unlogged = self._count - self._rate
                _log.warning("%d requests of a flood were not logged in a second", unlogged)
            self._second = second
            self._count = 0
        self._count += 1
        return self._count > self._rate
