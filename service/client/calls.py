"""Calls: what is sent, and how the answer is read. Nothing in here sends anything."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload
from urllib.parse import quote

import httpx
from pydantic_core import to_json

from turnwise.service.client.answers import check, parse, parse_text
from turnwise.service.client.errors import NotFoundError

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and the type of its answer.

    Attributes:
        method: Of HTTP.
        path: Below the service's URL.
        answer: The type of the answer.
        body: Sent as JSON; None where there is none.
        query: After the path.
        headers: Beside those of every call.
        repeatable: Whether doing it twice is as good as doing it once.
        deletes: Whether a repeated one that finds nothing has done its work.
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
        """Return the request of one attempt, of at most so many seconds."""
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
        """Return the value that an answer holds; `again`: an attempt came before.

        Raises:
            ClientError: The answer says no, or is none of Turnwise.
        """
        try:
            check(response)
        except NotFoundError:
            if not (again and self.deletes):
                raise
            return parse_text("null", self.answer)
        return parse(response, self.answer)


class Sender:
    """Sends calls and waits."""

    def send(self, call: Call[T]) -> T:
        """Make a call, more than once where that is due."""
        raise NotImplementedError


class AsyncSender:
    """Sends calls; their answers are awaited."""

    async def send(self, call: Call[T]) -> T:
        """Make a call, more than once where that is due."""
        raise NotImplementedError


class operation(Generic[S, P, T]):  # noqa: N801 - a decorator
    """A method that is written once, as the call that it makes, and sent by whoever has it.

    A `Sender` has it as a method that returns the answer, an `AsyncSender` as one to await.
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

        def send(*args: P.args, **options: P.kwargs) -> Any:  # noqa: ANN401 - as the sender has it
            return sender.send(self._build(sender, *args, **options))

        return update_wrapper(send, self._build)


def path(*names: str) -> str:
    """Return the path of names, each of which may hold anything."""
    return "".join("/" + _segment(name) for name in names)


def _segment(name: str) -> str:
    if not name.strip("."):  # dots alone would be steps of the path
        return name.replace(".", "%2E")
    return quote(name, safe="", errors="surrogatepass")  # half a character: the service says no
