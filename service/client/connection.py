"""The connection to a service, for both clients: URL, API key, timeouts, errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import httpx
from pydantic_core import PydanticSerializationError

from turnwise.service.client.attempts import Attempts
from turnwise.service.client.errors import ClientError, UnreachableError

LOCAL = "http://127.0.0.1:8000"

H = TypeVar("H", httpx.Client, httpx.AsyncClient)


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of a service, the API key, and the timeouts of calls."""

    url: str
    key: str | None
    namespace: str | None
    timeout: float
    deadline: float

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every call."""
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return key | ({"Turnwise-Namespace": self.namespace} if self.namespace else {})

    def attempts(self, *, repeatable: bool = True) -> Attempts:
        """Return the attempts of a new call."""
        return Attempts(repeatable=repeatable, timeout=self.timeout, deadline=self.deadline)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Raise a `ClientError` if no answer comes or the request cannot be sent."""
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreachableError(self.url, error) from error
        except (UnicodeEncodeError, PydanticSerializationError):
            unsent = ClientError(  # the text may be secret
                "cannot be sent: the key or namespace is not ASCII, or a text has a lone surrogate"
            )
            unsent.undone = True
            raise unsent from None


class Connected(Generic[H]):
    """A client with its connections to a service.

    Args:
        url: The URL of the service.
        key: The API key, if the service needs one.
        namespace: Another namespace than the key's own; needs the scope `admin`.
        timeout: Seconds for one attempt.
        deadline: Seconds for all attempts of a call and the pauses between them.
    """

    _library: type[H]

    def __init__(
        self,
        url: str = LOCAL,
        *,
        key: str | None = None,
        namespace: str | None = None,
        timeout: float = 15.0,
        deadline: float = 30.0,
    ) -> None:
        self._to = Connection(url, key, namespace, timeout, deadline)
        with self._to.reached():
            self._http: H = self._library(base_url=url, headers=self._to.headers)
