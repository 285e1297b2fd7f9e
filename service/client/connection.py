"""What both clients know of the service that they talk to."""

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
    """Where the service is, who calls, and for how long."""

    url: str
    key: str | None
    namespace: str | None
    timeout: float
    deadline: float

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every call."""
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return key | ({"Turnwise-Namespace": self.namespace} if self.namespace else {})

    def attempts(self, *, repeatable: bool = True) -> Attempts:
        """Begin a call."""
        return Attempts(repeatable=repeatable, timeout=self.timeout, deadline=self.deadline)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Say it in our words where no answer comes."""
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreachableError(self.url, error) from error
        except (UnicodeEncodeError, PydanticSerializationError):
            unsent = ClientError(  # what it is may be secret
                "cannot be sent: a key or a namespace has letters beyond ASCII, or a text has half "
                "of a character"
            )
            unsent.undone = True
            raise unsent from None


class Connected(Generic[H]):
    """Has connections to a service.

    Args:
        url: Of the service.
        key: An API key.
        namespace: Another than the key's own, for administrators.
        timeout: Seconds for one attempt.
        deadline: Seconds for all attempts of a call, with the pauses between them.
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
