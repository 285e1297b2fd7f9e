"""An upload of candidates: lines that leave one after the other, and lines of progress back."""

import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from http import HTTPStatus
from itertools import islice
from pathlib import Path

import httpx
from anyio import to_thread
from pydantic import TypeAdapter, ValidationError

from turnwise.models.data import read_jsonl
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.service.client.calls import path
from turnwise.service.client.errors import ProblemError, UnexpectedAnswerError
from turnwise.service.wire.ops import Version
from turnwise.service.wire.pools import (
    NDJSON,
    Edited,
    UploadedCandidate,
    UploadStep,
    candidate_lines,
)
from turnwise.service.wire.problems import PROBLEM_PREFIX, Problem

Candidates = Path | Collection[UploadedCandidate | str]
"""A file of JSON lines (also .gz, .xz), which is never held whole; candidates; or their texts."""
Progress = Callable[[int, int], None]
"""Gets how many candidates are encoded, and of how many."""

BROKEN_OFF = "the answer ended before it said what came of the upload"

_CHUNK = 1 << 16
_EVENT: TypeAdapter[UploadStep | Edited | Problem] = TypeAdapter(UploadStep | Edited | Problem)


class Upload:
    """One new version of a pool. It may be sent again, since all of it counts, or nothing does.

    Args:
        pool: Its name.
        candidates: What is added or replaced.
        progress: Called at each step of the service.

    Raises:
        DataError: A line of the file is not a candidate; nothing was sent.
        TypeError: The candidates are one text, which might be meant for a file's name, or an
            iterator, which could not be sent again.
    """

    def __init__(self, pool: str, candidates: Candidates, progress: Progress | None) -> None:
        if isinstance(candidates, str) or not isinstance(candidates, Path | Collection):
            raise TypeError(
                "candidates must be a Path or a collection of them, not one text or an iterator"
            )
        self._path = path("pools", pool, "candidates")
        self._candidates, self._progress = candidates, progress
        self._bytes = sum(map(len, self.chunks()))

    @property
    def large(self) -> bool:
        """Whether it has more than one piece."""
        return self._bytes > _CHUNK

    def check(self, service: Version) -> None:
        """Compare its size with the limit: an answer that comes while pieces leave may get lost.

        Raises:
            InvalidRequestError: It has too many bytes.
        """
        most = service.limits.get("max_upload_bytes", self._bytes)
        if self._bytes > most:
            raise ProblemError.of(
                Problem(
                    type=f"{PROBLEM_PREFIX}body-too-large",
                    title="Body too large",
                    status=413,
                    detail=f"{self._bytes} bytes are more than the limit of {most}",
                )
            )

    def request(
        self,
        client: httpx.Client | httpx.AsyncClient,
        content: Iterator[bytes] | AsyncIterator[bytes],
        timeout: float,
    ) -> httpx.Request:
        """Return the request of one attempt.

        Nothing is heard while a batch of an upload waits for turns that come before it: reading
        has no limit of time.
        """
        headers = {
            "Content-Type": NDJSON,
            "Accept": NDJSON,
            "Content-Length": str(self._bytes),  # by which the service refuses before it reads
        }
        seconds = httpx.Timeout(timeout, read=None)
        return client.build_request(
            "PUT", self._path, content=content, headers=headers, timeout=seconds
        )

    def chunks(self) -> Iterator[bytes]:
        """Yield the body, lines of JSON, in pieces of about 64 KB."""
        chunk = bytearray()
        for candidate in self._all():
            chunk += json.dumps(candidate.model_dump(exclude_none=True)).encode() + b"\n"
            if len(chunk) >= _CHUNK:
                yield bytes(chunk)
                chunk.clear()
        yield bytes(chunk)

    async def async_chunks(self) -> AsyncIterator[bytes]:
        """Yield the same, read in a thread."""
        chunks = self.chunks()
        while chunk := await to_thread.run_sync(next, chunks, b""):
            yield chunk

    def hear(self, line: str) -> Edited | None:
        """Take a line of the answer: the last one holds what came of the upload.

        Raises:
            ProblemError: The service says no.
            UnexpectedAnswerError: The line is not the service's.
        """
        try:
            event = _EVENT.validate_json(line, extra="ignore")
        except ValidationError:
            raise UnexpectedAnswerError(self._path, HTTPStatus.OK) from None
        match event:
            case UploadStep(encoded, total):
                if self._progress:
                    self._progress(encoded, total)
                return None
            case Problem() as problem:
                raise ProblemError.of(problem)
            case edited:
                return edited

    def located(self, error: ProblemError) -> TurnwiseError:
        """Return an error that names the line of the file, where the problem is with one."""
        for wrong in error.errors:
            match self._candidates, wrong.loc:
                case Path() as file, ("body", int(place), *names):
                    line, _ = next(islice(read_jsonl(file), place, None))
                    return DataError(wrong.msg, str(file), line, ".".join(map(str, names)) or None)
        return error

    def _all(self) -> Iterator[UploadedCandidate]:
        if isinstance(self._candidates, Path):
            yield from candidate_lines(self._candidates)
        else:
            for given in self._candidates:
                yield UploadedCandidate(text=given) if isinstance(given, str) else given
