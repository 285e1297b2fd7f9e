"""`AsyncClient`: calls to await. Its twin is `synchronous`."""

import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Self, TypeVar

import httpx
from anyio import sleep, to_thread

from turnwise.service.client.answers import check
from turnwise.service.client.attempts import Attempts
from turnwise.service.client.calls import AsyncSender, Call
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


class AsyncClient(Connected[httpx.AsyncClient], ServiceOperations, AsyncSender):
    """A service, for event loops; an async context manager.

    Its arguments and what its calls raise are those of `Client`.
    """

    _library = httpx.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def session(self, session_id: str | None = None, *, forget: bool = False) -> "AsyncSession":
        """Return a session; nothing is sent before its first operation.

        Args:
            session_id: Chosen by you, to come back to it; where left out, one of its own.
            forget: Whether it is deleted where its `with` block ends.
        """
        return AsyncSession(self, session_id or uuid.uuid4().hex, forget=forget)

    def pool(self, name: str = "default") -> "AsyncPool":
        """Return a pool; nothing is sent before its first operation."""
        return AsyncPool(self, name)

    async def send(self, call: Call[T]) -> T:
        """Make a call, more than once where that is due."""

        async def attempt(attempts: Attempts) -> T:
            with self._to.reached():
                response = await self._http.send(call.request(self._http, attempts.timeout))
            return call.read(response, again=attempts.again)

        return await self._retried(attempt, self._to.attempts(repeatable=call.repeatable))

    async def upload(self, upload: Upload) -> Edited:
        """Send candidates, and wait until the service has encoded them."""

        async def attempt(attempts: Attempts) -> Edited:
            request = upload.request(self._http, upload.async_chunks(), attempts.timeout)
            with self._to.reached():
                async with aclosing(await self._http.send(request, stream=True)) as response:
                    if not response.is_success:
                        await response.aread()
                        check(response)
                    async for line in response.aiter_lines():
                        if edited := upload.hear(line):
                            return edited
                    raise httpx.RemoteProtocolError(BROKEN_OFF)

        if upload.large:
            upload.check(await self.version())
        return await self._retried(attempt, self._to.attempts())

    async def _retried(self, attempt: Callable[[Attempts], Awaitable[T]], attempts: Attempts) -> T:
        while True:
            try:
                return await attempt(attempts)
            except ClientError as error:
                await sleep(attempts.pause(error))


class AsyncSession(SessionOperations, AsyncSender):
    """A conversation; a context manager, which forgets it where that was asked for."""

    def __init__(self, client: AsyncClient, session_id: str, *, forget: bool) -> None:
        self.id = session_id
        self._client, self._forget = client, forget

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: object, __: object) -> None:
        if self._forget and not isinstance(error, UnreachableError):  # which would take as long
            with suppress(NotFoundError):  # nothing was said
                await self.delete()

    async def send(self, call: Call[T]) -> T:
        """Make a call, as the client does."""
        return await self._client.send(call)


class AsyncPool(PoolOperations, AsyncSender):
    """A catalogue of candidates."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.name = name
        self._client = client

    async def upsert(self, candidates: Candidates, progress: Progress | None = None) -> Edited:
        """Add or replace candidates of a pool that is there, as one version: all or none.

        Args:
            candidates: A file, which is streamed; candidates; or texts.
            progress: Called with how many are encoded, and of how many.

        Raises:
            DataError: A line of the file is not a candidate, or not one that the service takes.
            ClientError: The service says no, or cannot be reached.
        """
        upload = await to_thread.run_sync(Upload, self.name, candidates, progress)
        try:
            return await self._client.upload(upload)
        except ProblemError as error:
            raise upload.located(error) from None

    async def send(self, call: Call[T]) -> T:
        """Make a call, as the client does."""
        return await self._client.send(call)
