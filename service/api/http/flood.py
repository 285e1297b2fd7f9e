"""Slows down a flood of requests that the service refuses, or answers without a key.

Such requests cost little, but a client may send them as fast as the answers come. Beyond a rate,
their answers wait, and one line a second counts them instead of a line for each. A client that
waits for its answers then sends fewer requests, and the others keep the processor.
"""

import asyncio
import logging
from collections import Counter
from time import monotonic
from typing import NamedTuple

from starlette.types import Scope

from turnwise.service.api.access.audit import audit_flood
from turnwise.service.api.access.keys import Caller
from turnwise.service.errors import Forbidden, Overloaded, Unauthenticated


class Pace(NamedTuple):
    """A rate of requests, and what happens beyond it.

    Attributes:
        rate: Requests a second that are logged, and answered at once.
        pause: Seconds that the answers beyond them wait.
    """

    rate: int
    pause: float


REFUSED = Pace(20, 1.0)
"""The pace of the refused requests of a key. `Retry-After` asks for the same pause. Some of them
are parsed before they are refused, at 2 to 3 ms each."""
KEYLESS = Pace(100, 0.2)
"""The pace of all requests without a known key together; probes are among them."""

_REFUSALS = {Unauthenticated.status, Forbidden.status, Overloaded.status}
_SECONDS = 1.0
"""Seconds between two lines that count requests, and how far a caller may be ahead of its pace."""
_MOST_ADDRESSES = 10
"""Addresses that have a line; another line counts the rest."""

_log = logging.getLogger("turnwise.access")


class Flood:
    """Counts the requests that were refused, or have no known key."""

    def __init__(self, refused: Pace = REFUSED, keyless: Pace = KEYLESS) -> None:
        self._refused = refused
        self._keyless = keyless
        self._due: dict[Caller | None, float] = {}
        """When the next answer to a caller is due; None for all without a known key."""
        self._of_keys = Counter[tuple[str | None, str]]()
        """Requests without a line of their own, by the names of key and namespace."""
        self._of_addresses = Counter[str]()
        """Requests without a key and without a line of their own, by the client's address."""

    def choose_pause(self, scope: Scope, status: int) -> float:
        """Count a request whose answer begins.

        Args:
            scope: The request. Its state holds the caller if the request has a known key.
            status: The status of the answer.

        Returns:
            The seconds that the answer must wait; then the request needs no line in the logs.
        """
        state = scope.get("state", {})
        caller: Caller | None = state.get("caller")
        if caller and status not in _REFUSALS:
            return 0.0
        pace = self._refused if caller else self._keyless
        if self._is_within(pace, caller):
            return 0.0
        if not (self._of_keys or self._of_addresses):
            asyncio.get_running_loop().call_later(_SECONDS, self._log_counts)
        if caller:
            self._of_keys[caller.key, state["namespace"]] += 1
        else:
            client = scope.get("client")
            self._of_addresses[client[0] if client else "unknown"] += 1
        return pace.pause

    def _is_within(self, pace: Pace, caller: Caller | None) -> bool:
        """Return whether one more answer to a caller is within its pace; if so, count it.

        A caller may be a second ahead, so it gets up to `pace.rate` answers at once.
        """
        now = monotonic()
        due = max(self._due.get(caller, now), now)
        if due >= now + _SECONDS:
            return False
        self._due[caller] = due + 1 / pace.rate
        return True

    def _log_counts(self) -> None:
        for (key, namespace), requests in self._of_keys.items():
            audit_flood(key, namespace, requests)
        most = self._of_addresses.most_common(_MOST_ADDRESSES)
        rest = self._of_addresses.total() - sum(requests for _, requests in most)
        for address, requests in [*most, ("other addresses", rest)]:
            if requests:
                _log.warning(
                    "a flood from %s: %d requests without a known key are not logged one by one",
                    address,
                    requests,
                    extra={"address": address, "requests": requests},
                )
        self._of_keys.clear()
        self._of_addresses.clear()
