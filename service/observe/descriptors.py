"""Reports in the log that the process has no file descriptors left."""

import asyncio
import errno
import logging
import os
from dataclasses import dataclass
from time import monotonic

_LOG_SECONDS = 10.0

_log = logging.getLogger("turnwise.descriptors")


@dataclass(slots=True)
class _Shortage:
    """The shortage of this process, which is logged at most every `_LOG_SECONDS`."""

    log_after: float = 0.0

    def report(self, error: OSError) -> None:
        """Log the error, unless one was logged a moment ago."""
        if monotonic() >= self.log_after:
            self.log_after = monotonic() + _LOG_SECONDS
            _log.error("no file descriptors are left: %s (errno %s)", error.strerror, error.errno)


_shortage = _Shortage()


def is_shortage(error: BaseException) -> bool:
    """Return whether an error, or a cause of it, says that no descriptor is left; log that."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in {errno.EMFILE, errno.ENFILE}:
            _shortage.report(cause)
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def descriptors_left() -> bool:
    """Return whether the process can open one more file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        _shortage.report(error)
        return False
    return True


async def watch_descriptors(seconds: float = _LOG_SECONDS) -> None:
    """Check again and again that a descriptor is left, and log it if none is.

    The event loop drops connections that it cannot accept, without a line in the log.

    Args:
        seconds: Time between two checks.
    """
    while True:
        descriptors_left()
        await asyncio.sleep(seconds)
