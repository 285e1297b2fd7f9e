"""Calls: how a request is built, and how its answer is read. The clients send them."""

from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache, update_wrapper
from time import time
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from turnwise.service.client.errors import NotFoundError, ProblemError, UnexpectedAnswerError
from turnwise.service.wire.problems import PROBLEM_JSON, Problem

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and the type of its answer.

    Attributes:
        method: The HTTP method.
        path: The path below the service's URL.
        answer: The type of the answer.
        body: The body, sent as JSON; None for no body.
        query: The query parameters.
        headers: Headers in addition to those of every call.
        repeatable: Whether sending it twice has the same effect as once.
        deletes: Whether a 404 to a retry counts as success.
    """

    method: str
    path: str
    answer: type[T]
    body: object = None
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    deletes: bool = False

    def request(self, client: httpx.Client | httpx.AsyncClient, timeout: float) -> httpx.Request:
        """Return the request of one attempt; `timeout` is in seconds."""
        json = {} if self.body is None else {"Content-Type": "application/json"}
        return client.build_request(
            self.method,
            self.path,
            content=None if self.body is None else to_json(self.body),
            params=self.query,
            headers={**json, **self.headers},
            timeout=timeout,
        )

    def read(self, response: httpx.Response, *, again: bool) -> T:
        """Return the value of an answer; fields that this client does not know are ignored.

        Args:
            response: The answer.
            again: Whether an earlier attempt may have done the work.

        Raises:
            ClientError: The answer is an error, or does not come from Turnwise.
        """
        body = response.content
        try:
            check(response)
        except NotFoundError:
            if not (again and self.deletes):
                raise
            body = b""
        try:
            value: T = _make_adapter(cast(Hashable, self.answer)).validate_json(
                body or b"null", extra="ignore"
            )
        except ValidationError:
            raise UnexpectedAnswerError(str(response.url), response.status_code) from None
        return value


def check(response: httpx.Response) -> None:
    """Raise the error of an answer that is not a success. Its body must have been read.

    Raises:
        ProblemError: The answer is a problem document.
        UnexpectedAnswerError: The answer does not come from Turnwise.
    """
    if response.is_success:
        return
    retry_after = _read_retry_after(response)
    unexpected = UnexpectedAnswerError(str(response.url), response.status_code)
    unexpected.retry_after = retry_after
    if not response.headers.get("content-type", "").startswith(PROBLEM_JSON):
        raise unexpected
    try:
        problem = Problem.model_validate_json(response.content, extra="ignore")
    except ValidationError:
        raise unexpected from None
    raise ProblemError.of(problem, retry_after)


def _read_retry_after(response: httpx.Response) -> float | None:
    """Return the seconds until `Retry-After`, which may be a number or a date."""
    value = response.headers.get("retry-after", "")
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except ValueError:
        return None


@cache
def _make_adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))


class Sender:
    """Sends calls and returns their answers."""

    def send(self, call: Call[T]) -> T:
        """Send a call, with retries, and return its answer."""
        raise NotImplementedError


class AsyncSender:
    """Sends calls; their answers must be awaited."""

    async def send(self, call: Call[T]) -> T:
        """Send a call, with retries, and return its answer."""
        raise NotImplementedError


class operation(Generic[S, P, T]):  # noqa: N801 - a decorator
    """A decorator for methods that build a call. Calling such a method sends it.

    On a `Sender` the method returns the answer, on an `AsyncSender` a coroutine of it.
    """

    def __init__(self, build: Callable[Concatenate[S, P], Call[T]]) -> None:
        self._build = build

    @overload
    def __get__(self, sender: None, owner: type) -> Callable[Concatenate[S, P], Call[T]]: ...
    @overload
    def __get__(self, sender: Sender, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, sender: AsyncSender, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, sender: Any, owner: type) -> Any:
        if sender is None:
            return self._build

        def send(*args: P.args, **options: P.kwargs) -> Any:  # noqa: ANN401 - an answer or a coroutine
            return sender.send(self._build(sender, *args, **options))

        return update_wrapper(send, self._build)


def make_path(*names: str) -> str:
    """Return the path of names, with every character escaped that a path may not hold."""
    return "".join("/" + _quote_segment(name) for name in names)


def _quote_segment(name: str) -> str:
    if not name.strip("."):  # `.` and `..` would be resolved as parts of the path
        return name.replace(".", "%2E")
    return quote(name, safe="", errors="surrogatepass")  # the service rejects lone surrogates
