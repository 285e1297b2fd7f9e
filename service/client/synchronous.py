"""`Client`: calls that wait for their answer. Its twin is `asynchronous`."""

import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from time import sleep
from typing import Self, TypeVar

import httpx

from turnwise.service.client.answers import check
from turnwise.service.client.attempts import Attempts
from turnwise.service.client.calls import Call, Sender
from turnwise.service.client.connection import Connected
from turnwise.service.client.errors import (
    ClientError,
    NotFoundError,
    ProblemError,
    UnreachableError,
)
from turnwise.service.client.operations import PoolOperations, ServiceOperations, SessionOperations
from turnwise.service.client.uploads import BROKEN_OFF, Candidates, Progress, Upload
from turnwise.service.wire.pools import Edited

T = TypeVar("T")


class Client(Connected[httpx.Client], ServiceOperations, Sender):
    """A service, for threads; a context manager, which closes the connections.

    Every call raises `ClientError`, of the classes in `service.client.errors`. What may work later
    is tried again: a lost connection, 429 and 503, after the pause for which the service asks.
    """

    _library = httpx.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def session(self, session_id: str | None = None, *, forget: bool = False) -> "Session":
        """Return a session; nothing is sent before its first operation.

        Args:
            session_id: Chosen by you, to come back to it; where left out, one of its own.
            forget: Whether it is deleted where its `with` block ends.
        """
        return Session(self, session_id or uuid.uuid4().hex, forget=forget)

    def pool(self, name: str = "default") -> "Pool":
        """Return a pool; nothing is sent before its first operation."""
        return Pool(self, name)

    def send(self, call: Call[T]) -> T:
        """Make a call, more than once where that is due."""

        def attempt(attempts: Attempts) -> T:
            with self._to.reached():
                response = self._http.send(call.request(self._http, attempts.timeout))
            return call.read(response, again=attempts.again)

        return self._retried(attempt, self._to.attempts(repeatable=call.repeatable))

    def upload(self, upload: Upload) -> Edited:
        """Send candidates, and wait until the service has encoded them."""

        def attempt(attempts: Attempts) -> Edited:
            request = upload.request(self._http, upload.chunks(), attempts.timeout)
            with self._to.reached(), closing(self._http.send(request, stream=True)) as response:
                if not response.is_success:
                    response.read()
                    check(response)
                for line in response.iter_lines():
                    if edited := upload.hear(line):
                        return edited
                raise httpx.RemoteProtocolError(BROKEN_OFF)

        if upload.large:
            upload.check(self.version())
        return self._retried(attempt, self._to.attempts())

    def _retried(self, attempt: Callable[[Attempts], T], attempts: Attempts) -> T:
        while True:
            try:
                return attempt(attempts)
            except ClientError as error:
                sleep(attempts.pause(error))


class Session(SessionOperations, Sender):
    """A conversation; a context manager, which forgets it where that was asked for."""

    def __init__(self, client: Client, session_id: str, *, forget: bool) -> None:
        self.id = session_id
        self._client, self._forget = client, forget

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: object, __: object) -> None:
        if self._forget and not isinstance(error, UnreachableError):  # which would take as long
            with suppress(NotFoundError):  # nothing was said
                self.delete()

    def send(self, call: Call[T]) -> T:
        """Make a call, as the client does."""
        return self._client.send(call)


class Pool(PoolOperations, Sender):
    """A catalogue of candidates."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client

    def upsert(self, candidates: Candidates, progress: Progress | None = None) -> Edited:
        """Add or replace candidates of a pool that is there, as one version: all or none.

        Args:
            candidates: A file, which is streamed; candidates; or texts.
            progress: Called with how many are encoded, and of how many.

        Raises:
            DataError: A line of the file is not a candidate, or not one that the service takes.
            ClientError: The service says no, or cannot be reached.
        """
        upload = Upload(self.name, candidates, progress)
        try:
            return self._client.upload(upload)
        except ProblemError as error:
            raise upload.located(error) from None

    def send(self, call: Call[T]) -> T:
        """Make a call, as the client does."""
        return self._client.send(call)
