"""Uploads of candidates: streaming the lines and reading the progress."""

import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
from anyio import to_thread
from pydantic import TypeAdapter, ValidationError

from turnwise.models.errors import TurnwiseError
from turnwise.service.candidate_files import CandidateFile
from turnwise.service.client.attempts import Attempts
from turnwise.service.client.calls import make_path
from turnwise.service.client.errors import ClientError, ProblemError, UnexpectedAnswerError
from turnwise.service.wire.ops import Version
from turnwise.service.wire.pools import (
    NDJSON,
    Edited,
    UploadedCandidate,
    UploadStep,
)
from turnwise.service.wire.problems import PROBLEM_PREFIX, Problem

Candidates = Path | Collection[UploadedCandidate | Mapping[str, Any] | str]
"""A file, or a collection of candidates, of their fields or of their texts."""
Progress = Callable[[int, int], None]
"""Called with (candidates encoded, candidates in total)."""

BATCH = 10_000
"""Candidates in a batch of a file, which two cores encode in half a minute."""

BROKEN_OFF = "the answer ended before the result of the upload"

_CHUNK = 1 << 16
_EVENT: TypeAdapter[UploadStep | Edited | Problem] = TypeAdapter(UploadStep | Edited | Problem)


class Upload:
    """An upload. It makes one version of a pool or changes nothing, so it can be sent again.

    Args:
        pool: The name of the pool.
        candidates: The candidates to add or replace.
        progress: Called after each step of the service.
        add_examples: Whether to add their examples to the pool's candidates, and nothing else.

    Raises:
        DataError: The file cannot be read, or has no candidates; nothing was sent.
        TypeError: The candidates are one text, perhaps a file name, or an iterator, which cannot
            be sent again.
    """

    def __init__(
        self,
        pool: str,
        candidates: Candidates,
        progress: Progress | None,
        *,
        add_examples: bool = False,
    ) -> None:
        if isinstance(candidates, str) or not isinstance(candidates, Path | Collection):
            raise TypeError(
                "candidates must be a Path or a collection, not one text or an iterator"
            )
        self._path = make_path("pools", pool, "candidates") + (
            "?examples=add" if add_examples else ""
        )
        self._file = None
        if isinstance(candidates, Path):
            self._file = CandidateFile.read(candidates)
            candidates = self._file.candidates
        self._candidates = candidates
        self._progress = progress
        self._bytes = sum(map(len, self.chunks()))

    @property
    def large(self) -> bool:
        """Whether the upload has more than one chunk."""
        return self._bytes > _CHUNK

    def check(self, service: Version) -> None:
        """Compare the size with the service's limit first: an answer while sending may get lost.

        Raises:
            InvalidRequestError: The upload has too many bytes.
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

        Reading has no timeout: the service reports nothing while the upload waits for turns, which
        the encoder queue serves first.
        """
        headers = {
            "Content-Type": NDJSON,
            "Accept": NDJSON,
            "Content-Length": str(self._bytes),  # the service can reject it before reading
        }
        seconds = httpx.Timeout(timeout, read=None)
        return client.build_request(
            "PUT", self._path, content=content, headers=headers, timeout=seconds
        )

    def chunks(self) -> Iterator[bytes]:
        """Yield the body, lines of JSON, in chunks of about 64 KB."""
        chunk = bytearray()
        for given in self._candidates:
            fields: Mapping[str, Any]
            if isinstance(given, UploadedCandidate):
                fields = given.model_dump(exclude_defaults=True)
            else:
                fields = {"text": given} if isinstance(given, str) else given
            chunk += json.dumps(fields).encode() + b"\n"
            if len(chunk) >= _CHUNK:
                yield bytes(chunk)
                chunk.clear()
        yield bytes(chunk)

    async def async_chunks(self) -> AsyncIterator[bytes]:
        """Yield the same chunks, made in a thread."""
        chunks = self.chunks()
        while chunk := await to_thread.run_sync(next, chunks, b""):
            yield chunk

    def read_line(self, line: str, attempts: Attempts) -> Edited | None:
        """Read a line of the answer; return the result of the upload if the line holds it.

        Each step gives the attempts more time, so that a long upload can be repeated as well.

        Raises:
            ProblemError: The service rejects the upload.
            UnexpectedAnswerError: The line does not come from Turnwise.
        """
        try:
            event = _EVENT.validate_json(line, extra="ignore")
        except ValidationError:
            raise UnexpectedAnswerError(self._path, HTTPStatus.OK) from None
        match event:
            case UploadStep(encoded, total):
                attempts.advance(encoded)
                if self._progress:
                    self._progress(encoded, total)
                return None
            case Problem() as problem:
                raise ProblemError.of(problem)
            case edited:
                return edited

    def locate(self, error: ProblemError) -> TurnwiseError:
        """Return an error that names the line of the file, if the problem is about a candidate."""
        return _locate_in_file(error, self._file) if self._file else error


@dataclass(frozen=True, slots=True)
class Loaded(Edited):
    """The result of loading a file: the sum of its batches, version and size of the last one."""

    examples: int
    """Examples of the candidates in the file."""


class Load:
    """The upload of a file in batches. Each batch makes one version of the pool.

    Args:
        pool: The name of the pool.
        file: The file.
        progress: Called after each step of the service.
        add_examples: As of an upload.

    Raises:
        DataError: The file cannot be read, or has no candidates; nothing was sent.
    """

    def __init__(
        self,
        pool: str,
        file: Path | str | CandidateFile,
        progress: Progress | None,
        *,
        add_examples: bool = False,
    ) -> None:
        self._pool = pool
        self._add_examples = add_examples
        self._file = file if isinstance(file, CandidateFile) else CandidateFile.read(Path(file))
        self._progress = progress
        self._loaded = 0
        self._sent = 0
        examples = sum(len(candidate.examples) for candidate in self._file.candidates)
        self.result = Loaded(version=0, upserted=0, unchanged=0, size=0, examples=examples)
        """The sum of the batches that are in the pool; version and size are those of the last."""

    def uploads(self) -> Iterator[Upload]:
        """Yield the uploads of the batches."""
        candidates = self._file.candidates
        for start in range(0, len(candidates), BATCH):
            batch = candidates[start : start + BATCH]
            self._sent += len(batch)
            yield Upload(self._pool, batch, self._report_progress, add_examples=self._add_examples)

    def add(self, edited: Edited) -> None:
        """Add the result of the last upload."""
        self._loaded = self._sent
        self.result = Loaded(
            version=edited.version,
            upserted=self.result.upserted + edited.upserted,
            unchanged=self.result.unchanged + edited.unchanged,
            size=edited.size,
            examples=self.result.examples,
            warnings=[*self.result.warnings, *edited.warnings],
        )

    def explain(self, error: ClientError) -> TurnwiseError:
        """Return the error of the last upload, which also says how many candidates are loaded."""
        located: TurnwiseError = error
        if isinstance(error, ProblemError):
            located = _locate_in_file(error, self._file, self._loaded)
        if self._loaded:
            located.add_note(
                f"the first {self._loaded} of {len(self._file.rows)} candidates are in pool "
                f"'{self._pool}'; load the file again to go on, which skips them"
            )
        return located

    def _report_progress(self, encoded: int, total: int) -> None:
        if self._progress:  # a batch has perhaps fewer texts to encode than candidates
            batch = self._sent - self._loaded
            self._progress(self._loaded + batch * encoded // total, len(self._file.rows))


def _locate_in_file(error: ProblemError, file: CandidateFile, skipped: int = 0) -> TurnwiseError:
    """Return an error that names the line of a file, if the problem is about a candidate.

    Args:
        error: The problem of an upload.
        file: The file of the upload.
        skipped: Candidates of the file before those of the upload.
    """
    for wrong in error.errors:
        match wrong.loc:
            case ("body", int(index), *names):
                row = file.rows[skipped + index]
                return row.error(wrong.msg, ".".join(map(str, names)) or None)
    return error
