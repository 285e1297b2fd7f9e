"""When a call that failed is tried again: the rule alone, without a clock's wait or a socket."""

import random
import time
from collections.abc import Callable

from turnwise.service.client.errors import ClientError

_FIRST, _MOST = 0.1, 5.0


class Attempts:
    """The attempts of one call, until its deadline.

    What may work later is tried again after a pause that doubles, with chance in it so that many
    clients do not come back at once, and that is never shorter than the service asks for.

    Args:
        repeatable: Whether the call may be done twice, or the service knows it when it comes again.
        timeout: Seconds for an attempt.
        deadline: Seconds for all of them with their pauses.
        now: The clock, in seconds.
    """

    def __init__(
        self,
        *,
        repeatable: bool,
        timeout: float,
        deadline: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._repeatable, self._timeout, self._now = repeatable, timeout, now
        self._end, self._failed = now() + deadline, 0

    @property
    def timeout(self) -> float:
        """Seconds that the attempt which begins now may take."""
        return max(0.001, min(self._timeout, self._end - self._now()))

    @property
    def again(self) -> bool:
        """Whether an attempt has failed before the one that begins now."""
        return self._failed > 0

    def pause(self, error: ClientError) -> float:
        """Return the seconds to wait before the next attempt.

        Raises:
            ClientError: The given one, where another attempt would do harm, or come too late.
        """
        longest = min(_MOST, _FIRST * 2**self._failed)
        pause = max(error.retry_after or 0.0, random.uniform(longest / 2, longest))  # noqa: S311
        self._failed += 1
        harmless = self._repeatable or error.undone
        if not (error.temporary and harmless) or self._now() + pause >= self._end:
            raise error
        return pause
