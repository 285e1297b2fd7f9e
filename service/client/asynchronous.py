"""`AsyncClient`, `AsyncSession` and `AsyncPool`: the client for event loops."""

import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import httpx
from anyio import sleep, to_thread

from turnwise.service.candidate_files import CandidateFile
from turnwise.service.client.attempts import Attempts
from turnwise.service.client.calls import AsyncSender, Call, check
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


class AsyncClient(Connected[httpx.AsyncClient], ServiceOperations, AsyncSender):
    """The client of a service for event loops; an async context manager.

    It has the arguments of `Client`, and its calls raise the same errors.
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
        """Return a session, as `Client.session` does."""
        return AsyncSession(self, session_id or uuid.uuid4().hex, forget=forget)

    def pool(self, name: str = "default") -> "AsyncPool":
        """Return a pool, as `Client.pool` does."""
        return AsyncPool(self, name)

    async def send(self, call: Call[T]) -> T:
        """Send a call, with retries, and return its answer."""

        async def attempt(attempts: Attempts) -> T:
            with self._translate_errors():
                response = await self._http.send(call.request(self._http, attempts.timeout))
            return call.read(response, again=attempts.again)

        return await self._retry(attempt, self._attempts(repeatable=call.repeatable))

    async def upload(self, upload: Upload) -> Edited:
        """Send candidates and return when the service has encoded them."""

        async def attempt(attempts: Attempts) -> Edited:
            request = upload.request(self._http, upload.async_chunks(), attempts.timeout)
            with self._translate_errors():
                async with aclosing(await self._http.send(request, stream=True)) as response:
                    if not response.is_success:
                        await response.aread()
                        check(response)
                    async for line in response.aiter_lines():
                        if edited := upload.read_line(line, attempts):
                            return edited
                    raise httpx.RemoteProtocolError(BROKEN_OFF)

        if upload.large:
            upload.check(await self.version())
        return await self._retry(attempt, self._attempts())

    async def _retry(self, attempt: Callable[[Attempts], Awaitable[T]], attempts: Attempts) -> T:
        while True:
            try:
                return await attempt(attempts)
            except ClientError as error:
                await sleep(attempts.pause(error))


class AsyncSession(SessionOperations, AsyncSender):
    """A session; a context manager, which deletes it at the end if `forget` is true."""

    def __init__(self, client: AsyncClient, session_id: str, *, forget: bool) -> None:
        self.id = session_id
        self._client = client
        self._forget = forget

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: object, __: object) -> None:
        if self._forget and not isinstance(error, UnreachableError):  # a deletion would fail too
            with suppress(NotFoundError):  # no turn was posted
                await self.delete()

    async def send(self, call: Call[T]) -> T:
        """Send a call with the client."""
        return await self._client.send(call)


class AsyncPool(PoolOperations, AsyncSender):
    """A pool of candidates."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.name = name
        self._client = client

    async def upsert(self, candidates: Candidates, progress: Progress | None = None) -> Edited:
        """Add or replace candidates, as `Pool.upsert` does."""
        upload = await to_thread.run_sync(Upload, self.name, candidates, progress)
        try:
            return await self._client.upload(upload)
        except ProblemError as error:
            raise upload.locate(error) from None

    async def load(
        self,
        file: Path | str | CandidateFile,
        progress: Progress | None = None,
        *,
        add_examples: bool = False,
    ) -> Loaded:
        """Add or replace the candidates of a file, as `Pool.load` does."""
        begin = partial(Load, self.name, file, progress, add_examples=add_examples)
        load = await to_thread.run_sync(begin)
        uploads = load.uploads()
        while upload := await to_thread.run_sync(next, uploads, None):
            try:
                load.add(await self._client.upload(upload))
            except ClientError as error:
                raise load.explain(error) from None
        return load.result

    async def send(self, call: Call[T]) -> T:
        """Send a call with the client."""
        return await self._client.send(call)
