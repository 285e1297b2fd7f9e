"""The parts that both clients share: URL, API key, timeouts, and errors of sending."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx
from pydantic_core import PydanticSerializationError

from turnwise.service.client.attempts import Attempts
from turnwise.service.client.errors import ClientError, UnreachableError

LOCAL = "http://127.0.0.1:8000"

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}

H = TypeVar("H", httpx.Client, httpx.AsyncClient)


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
        self._url: str = url
        self._timeout: float = timeout
        self._deadline: float = deadline
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        headers |= {"Turnwise-Namespace": namespace} if namespace else {}
        with self._translate_errors():
            # A proxy cannot reach this machine's loopback address.
            self._http: H = self._library(
                base_url=url, headers=headers, trust_env=httpx.URL(url).host not in _LOOPBACK
            )

    def _attempts(self, *, repeatable: bool = True) -> Attempts:
        """Return the attempts of a new call."""
        return Attempts(repeatable=repeatable, timeout=self._timeout, deadline=self._deadline)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise a `ClientError` if no answer comes or the request cannot be sent."""
        try:
            yield
        except httpx.HTTPError as error:
            raise UnreachableError(self._url, error, _find_proxy(self._url)) from error
        except ImportError as error:  # of the package for a SOCKS proxy
            raise UnreachableError(self._url, error, _find_proxy(self._url)) from None
        except httpx.InvalidURL as error:
            raise UnreachableError(self._url, error) from None
        except (UnicodeEncodeError, PydanticSerializationError):
            unsent = ClientError(  # the text may be secret
                "cannot be sent: the key or namespace is not ASCII, or a text has a lone surrogate"
            )
            unsent.undone = True
            raise unsent from None
        except UnicodeError as error:  # of a name that no host can have
            raise UnreachableError(self._url, error) from error


def _find_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for requests to a URL; None if it names none."""
    place = urlsplit(url)
    host = place.hostname or ""
    if host in _LOOPBACK or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(place.scheme) or proxies.get("all")
