"""What a call can fail with.

- ClientError: any of them; its text is one line for people.
  - UnreachableError: no answer came: there is no connection, or not in time.
  - UnexpectedAnswerError: the answer is not one of Turnwise: another server's, or a proxy's.
  - ProblemError: the service says no, in a problem document (RFC 9457).
    - InvalidRequestError 400, 408, 413, 415, 422, 431: it cannot take what was sent, and says why.
    - AccessError 401, 403: the API key is missing, unknown, or lacks a scope.
    - NotFoundError 404: no such session, pool or candidate.
    - ConflictError 409: the session or the pool is not as the call expects it.
    - OverloadedError 429: too many requests wait.
    - UnavailableError 503: not now; it is stopping, or Redis cannot be reached.

Where `temporary`, the client has tried again until its deadline before it raised.
"""

from typing import ClassVar

import httpx

from turnwise.models.errors import TurnwiseError
from turnwise.service.wire.problems import PROBLEM_PREFIX, FieldError, Problem


class ClientError(TurnwiseError):
    """Any failure of a call; see the tree at the top of the module.

    Attributes:
        temporary: Whether the same call may work later.
        undone: Whether it is certain that the call changed nothing.
        retry_after: Seconds for which the service asks to be left alone, where it says so.
    """

    temporary: bool = False
    undone: bool = False
    retry_after: float | None = None


class UnreachableError(ClientError):
    """No answer came: there is no connection, or not in time."""

    _UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
    _HOPELESS = (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError)

    def __init__(self, url: str, error: Exception) -> None:
        why = str(error).rstrip(".") or type(error).__name__
        super().__init__(f"{url} cannot be reached: {why}")
        self.temporary = not isinstance(error, self._HOPELESS)
        self.undone = isinstance(error, self._UNSENT + self._HOPELESS)


class UnexpectedAnswerError(ClientError):
    """The answer is not one of Turnwise: another server's, or a proxy's.

    Attributes:
        status: Of the answer.
    """

    _OF_PROXIES = frozenset({429, 502, 503, 504})

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url} answers {status}, but not as Turnwise does: is it a service?")
        self.status = status
        self.temporary = status in self._OF_PROXIES


class ProblemError(ClientError):
    """The service says no, in a problem document (RFC 9457).

    Attributes:
        status: Of the answer.
        type: The kind of problem: `urn:turnwise:problem:` and a name that stays.
        title: The kind of problem, for people.
        detail: What went wrong this time, for people.
        errors: Fields at fault.
        request_id: By which the service's logs know the request.
    """

    statuses: ClassVar[frozenset[int]] = frozenset()

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(f"{problem.title}: {problem.detail}")
        self.status, self.type, self.title = problem.status, problem.type, problem.title
        self.detail, self.request_id = problem.detail, problem.request_id
        self.errors: tuple[FieldError, ...] = problem.errors
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        """The name at the end of `type`, such as `turn-conflict`."""
        return self.type.removeprefix(PROBLEM_PREFIX)

    @classmethod
    def of(cls, problem: Problem, retry_after: float | None = None) -> "ProblemError":
        """Return the error of a problem, of the class for its status."""
        kinds = (kind for kind in cls.__subclasses__() if problem.status in kind.statuses)
        return next(kinds, cls)(problem, retry_after)


class InvalidRequestError(ProblemError):
    """The service cannot take what was sent; `errors` names the fields."""

    statuses = frozenset({400, 408, 413, 415, 422, 431})


class AccessError(ProblemError):
    """The API key is missing, unknown, or lacks a scope."""

    statuses = frozenset({401, 403})


class NotFoundError(ProblemError):
    """There is no such session, pool or candidate."""

    statuses = frozenset({404})


class ConflictError(ProblemError):
    """The session or the pool is not as the call expects it."""

    statuses = frozenset({409})


class OverloadedError(ProblemError):
    """Too many requests wait."""

    statuses = frozenset({429})
    temporary = undone = True


class UnavailableError(ProblemError):
    """Not now; the service is stopping, or Redis cannot be reached."""

    statuses = frozenset({503})
    temporary = True
