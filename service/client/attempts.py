"""The rule for retries: when to send a failed call again. It does no waiting and no I/O."""

import random
from time import monotonic

from turnwise.service.client.errors import ClientError

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_REFUSED_SECONDS = 1.0
"""Seconds for which a refused connection is retried: a wrong URL must not take all the time."""


class Attempts:
    """The attempts of one call, until its deadline.

    The pause between attempts doubles each time. It is random, so that clients do not return all at
    once, and at least as long as the service asks for.

    Args:
        repeatable: Whether the call may be sent again although it may have arrived.
        timeout: Seconds for one attempt.
        deadline: Seconds for all attempts and the pauses between them; `advance` restarts them.
    """

    def __init__(self, *, repeatable: bool, timeout: float, deadline: float) -> None:
        self._repeatable = repeatable
        self._timeout = timeout
        self._deadline = deadline
        self._done = 0
        self._end = monotonic() + deadline
        self._failed = 0
        self._refused_since: float | None = None
        """When the first of the last attempts in a row found no connection."""
        self.again = False
        """Whether an earlier attempt may have done the work, although it failed."""

    @property
    def timeout(self) -> float:
        """The timeout, in seconds, of an attempt that begins now."""
        return max(0.001, min(self._timeout, self._end - monotonic()))

    def advance(self, done: int) -> None:
        """Restart the deadline if more of the work is done than after any earlier attempt."""
        if done > self._done:
            self._done = done
            self._failed = 0
            self._end = monotonic() + self._deadline

    def pause(self, error: ClientError) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            ClientError: The given error, if a retry would be useless, unsafe or too late.
        """
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self._failed)
        pause = max(error.retry_after or 0.0, random.uniform(longest / 2, longest))  # noqa: S311
        self._failed += 1
        if not error.undone:
            self.again = True
        is_harmless = self._repeatable or error.undone
        is_late = monotonic() + pause >= self._find_last_moment(error)
        if not error.temporary or not is_harmless or is_late:
            raise error
        return pause

    def _find_last_moment(self, error: ClientError) -> float:
        """Return the time from which on no attempt may begin after an error."""
        if not error.refused:
            self._refused_since = None
            return self._end
        if self._refused_since is None:
            self._refused_since = monotonic()
        return min(self._end, self._refused_since + _REFUSED_SECONDS)
