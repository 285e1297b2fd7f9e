"""`Client`, `Session` and `Pool`: the client for threads. `asynchronous` mirrors it."""

import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from time import sleep
from typing import Self, TypeVar

import httpx

from turnwise.service.candidate_files import CandidateFile
from turnwise.service.client.attempts import Attempts
from turnwise.service.client.calls import Call, Sender, check
from turnwise.service.client.connection import Connected
from turnwise.service.client.errors import (
    ClientError,
    NotFoundError,
    ProblemError,
    UnreachableError,
)
from turnwise.service.client.operations import PoolOperations, ServiceOperations, SessionOperations
from turnwise.service.client.uploads import (
    BROKEN_OFF,
    Candidates,
    Load,
    Loaded,
    Progress,
    Upload,
)
from turnwise.service.wire.pools import Edited

T = TypeVar("T")


class Client(Connected[httpx.Client], ServiceOperations, Sender):
    """The client of a service for threads; a context manager.

    Every call may raise a `ClientError` (see `service.client.errors`). The client retries after
    lost connections, 429 and 503, and waits at least as long as `Retry-After` says.
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
        """Return a session. Nothing is sent before its first operation.

        Args:
            session_id: Your name for the session; random by default.
            forget: Whether the end of the `with` block deletes the session.
        """
        return Session(self, session_id or uuid.uuid4().hex, forget=forget)

    def pool(self, name: str = "default") -> "Pool":
        """Return a pool. Nothing is sent before its first operation."""
        return Pool(self, name)

    def send(self, call: Call[T]) -> T:
        """Send a call, with retries, and return its answer."""

        def attempt(attempts: Attempts) -> T:
            with self._translate_errors():
                response = self._http.send(call.request(self._http, attempts.timeout))
            return call.read(response, again=attempts.again)

        return self._retry(attempt, self._attempts(repeatable=call.repeatable))

    def upload(self, upload: Upload) -> Edited:
        """Send candidates and return when the service has encoded them."""

        def attempt(attempts: Attempts) -> Edited:
            request = upload.request(self._http, upload.chunks(), attempts.timeout)
            with (
                self._translate_errors(),
                closing(self._http.send(request, stream=True)) as response,
            ):
                if not response.is_success:
                    response.read()
                    check(response)
                for line in response.iter_lines():
                    if edited := upload.read_line(line, attempts):
                        return edited
                raise httpx.RemoteProtocolError(BROKEN_OFF)

        if upload.large:
            upload.check(self.version())
        return self._retry(attempt, self._attempts())

    def _retry(self, attempt: Callable[[Attempts], T], attempts: Attempts) -> T:
        while True:
            try:
                return attempt(attempts)
            except ClientError as error:
                sleep(attempts.pause(error))


class Session(SessionOperations, Sender):
    """A session; a context manager, which deletes it at the end if `forget` is true."""

    def __init__(self, client: Client, session_id: str, *, forget: bool) -> None:
        self.id = session_id
        self._client = client
        self._forget = forget

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: object, __: object) -> None:
        if self._forget and not isinstance(error, UnreachableError):  # a deletion would fail too
            with suppress(NotFoundError):  # no turn was posted
                self.delete()

    def send(self, call: Call[T]) -> T:
        """Send a call with the client."""
        return self._client.send(call)


class Pool(PoolOperations, Sender):
    """A pool of candidates."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client

    def upsert(self, candidates: Candidates, progress: Progress | None = None) -> Edited:
        """Add or replace candidates of an existing pool, as one version or not at all.

        Args:
            candidates: A file; candidates; or texts.
            progress: Called with (candidates encoded, candidates in total).

        Raises:
            DataError: The file cannot be read, has no candidates, or the service rejects one.
            ClientError: The service rejects the upload or cannot be reached.
        """
        upload = Upload(self.name, candidates, progress)
        try:
            return self._client.upload(upload)
        except ProblemError as error:
            raise upload.locate(error) from None

    def load(
        self,
        file: Path | str | CandidateFile,
        progress: Progress | None = None,
        *,
        add_examples: bool = False,
    ) -> Loaded:
        """Add or replace the candidates of a file, in batches that make one version each.

        If a batch fails, those before it stay in the pool, and a note of the error says how many
        candidates that are. To go on, load the file again: the service recognises candidates that
        it has, and does not encode them again.

        Args:
            file: The file, or what was read from it.
            progress: Called with (candidates loaded, candidates in the file).
            add_examples: Add only the examples of the lines, to candidates that the pool has.

        Raises:
            DataError: The file cannot be read, has no candidates, or the service rejects one.
            ClientError: The service rejects a batch or cannot be reached.
        """
        load = Load(self.name, file, progress, add_examples=add_examples)
        for upload in load.uploads():
            try:
                load.add(self._client.upload(upload))
            except ClientError as error:
                raise load.explain(error) from None
        return load.result

    def send(self, call: Call[T]) -> T:
        """Send a call with the client."""
        return self._client.send(call)
