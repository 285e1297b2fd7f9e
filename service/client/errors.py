"""The exceptions that the client raises.

- ClientError: any error of a call; its text is one line for people.
  - UnreachableError: no connection, or no answer in time.
  - UnexpectedAnswerError: the answer comes from another server or a proxy.
  - ProblemError: the service answered with a problem document (RFC 9457).
    - InvalidRequestError 400, 408, 413, 415, 421, 422, 431: the service rejects the request.
    - AccessError 401, 403: the API key is missing, unknown or expired, or lacks a scope.
    - NotFoundError 404: no such session, pool or candidate.
    - ConflictError 409: the session or the pool is not in the state that the call expects.
    - OverloadedError 429: too many requests wait, or the namespace sends too many.
    - UnavailableError 503: the service is not ready, is stopping, or cannot reach Redis.

The client retries `temporary` errors until its deadline before it raises them. Where nothing
listens, it retries for a second.
"""

from typing import ClassVar

import httpx

from turnwise.models.errors import TurnwiseError
from turnwise.service.urls import hide_secrets, show_url
from turnwise.service.wire.problems import PROBLEM_PREFIX, FieldError, Problem


class ClientError(TurnwiseError):
    """Any error of a call; see the tree at the top of the module.

    Attributes:
        temporary: Whether the same call may succeed later.
        undone: Whether the call certainly changed nothing.
        refused: Whether there was no connection at all, so that a retry soon helps little.
        retry_after: Seconds to wait before a retry, if the service names them.
    """

    temporary: bool = False
    undone: bool = False
    refused: bool = False
    retry_after: float | None = None


class UnreachableError(ClientError):
    """There is no connection, or no answer came in time."""

    _UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
    _HOPELESS = (
        httpx.UnsupportedProtocol,
        httpx.InvalidURL,
        httpx.LocalProtocolError,
        UnicodeError,
        ImportError,  # of the package for a SOCKS proxy
    )

    def __init__(self, url: str, error: Exception, proxy: str | None = None) -> None:
        why = hide_secrets(str(error)).rstrip(".") or type(error).__name__
        if isinstance(error, httpx.InvalidURL):  # its text may quote a part of a password
            why = "it is not a valid URL"
        elif isinstance(error, httpx.UnsupportedProtocol):
            why = "the URL must begin with http:// or https://"
        through = f" through the proxy {show_url(proxy)}" if proxy else ""
        super().__init__(f"{show_url(url)} cannot be reached{through}: {why}")
        self.temporary = not isinstance(error, self._HOPELESS)
        self.undone = isinstance(error, self._UNSENT + self._HOPELESS)
        self.refused = isinstance(error, httpx.ConnectError)


class UnexpectedAnswerError(ClientError):
    """The answer comes from another server or a proxy.

    Attributes:
        status: The status of the answer.
    """

    _OF_PROXIES = frozenset({429, 502, 503, 504})

    def __init__(self, url: str, status: int) -> None:
        super().__init__(
            f"{show_url(url)} answered {status}, but not as Turnwise does: is the URL right?"
        )
        self.status = status
        self.temporary = status in self._OF_PROXIES


class ProblemError(ClientError):
    """The service answered with a problem document (RFC 9457).

    Attributes:
        status: The status of the answer.
        type: The kind of problem: `urn:turnwise:problem:` and a name that does not change.
        title: The kind of problem, for people.
        detail: The description of this problem, for people.
        errors: The fields at fault.
        request_id: The id of the request in the service's logs.
    """

    statuses: ClassVar[frozenset[int]] = frozenset()

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(f"{problem.title}: {problem.detail}")
        self.status = problem.status
        self.type = problem.type
        self.title = problem.title
        self.detail = problem.detail
        self.request_id = problem.request_id
        self.errors: tuple[FieldError, ...] = problem.errors
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        """The name at the end of `type`, such as `turn-conflict`."""
        return self.type.removeprefix(PROBLEM_PREFIX)

    @classmethod
    def of(cls, problem: Problem, retry_after: float | None = None) -> "ProblemError":
        """Return the error of a problem, as the class for its status."""
        kinds = (kind for kind in cls.__subclasses__() if problem.status in kind.statuses)
        return next(kinds, cls)(problem, retry_after)


class InvalidRequestError(ProblemError):
    """The service rejects the request; `errors` names the fields."""

    statuses = frozenset({400, 408, 413, 415, 421, 422, 431})


class AccessError(ProblemError):
    """The API key is missing, unknown or expired, or lacks a scope."""

    statuses = frozenset({401, 403})


class NotFoundError(ProblemError):
    """There is no such session, pool or candidate."""

    statuses = frozenset({404})


class ConflictError(ProblemError):
    """The session or the pool is not in the state that the call expects."""

    statuses = frozenset({409})


class OverloadedError(ProblemError):
    """Too many requests wait, or the namespace has too many requests or uploads at once."""

    statuses = frozenset({429})
    temporary = True
    undone = True


class UnavailableError(ProblemError):
    """The service is not ready, is stopping, or cannot reach Redis."""

    statuses = frozenset({503})
    temporary = True
