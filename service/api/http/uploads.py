"""Uploads of candidates: the parser of the request, and answers with lines of progress."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from email.message import Message
from io import BytesIO
from pathlib import PurePath
from typing import Any, BinaryIO, NamedTuple

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.requests import Request

from turnwise.models.errors import DataError
from turnwise.models.text_files import COMPRESSED, CORRUPT
from turnwise.models.texts import write_count
from turnwise.service.api.access.audit import CLIENT_LEFT
from turnwise.service.api.http.bodies import parse_json
from turnwise.service.api.http.problems import join_errors, locate_error, problem
from turnwise.service.candidate_files import CandidateReader, Columns, split_names
from turnwise.service.errors import (
    BodyTooLarge,
    InvalidRequest,
    PoolFull,
    ServiceError,
    UnsupportedMedia,
)
from turnwise.service.pools import Candidate
from turnwise.service.pools.candidate import find_excesses
from turnwise.service.pools.encoding import EncodingProgress
from turnwise.service.pools.files.candidates import read_open_file
from turnwise.service.pools.memory.free_memory import Admission, Memory
from turnwise.service.settings import Limits
from turnwise.service.threads import FairThreads
from turnwise.service.wire.pools import (
    AFTER,
    NDJSON,
    Edited,
    FileEdited,
    UploadedCandidate,
    UploadQuery,
    UploadStep,
)
from turnwise.service.wire.problems import FieldError, Problem

_MOST_ERRORS = 20
_MOST_FIELDS = 20
_MOST_ARRAY_BYTES = 32 << 20
"""Limit of an array, which is parsed whole."""
_CHUNK = 1 << 16
_FILE_MEDIA = {
    "text/csv": "upload.csv",
    "text/tab-separated-values": "upload.tsv",
    "text/plain": "upload.txt",
}
"""The content types of files, and names with their endings."""
_PARSED = 20
"""Bytes of memory that a byte of JSON may become."""

_log = logging.getLogger("turnwise.api")


class Uploaded(NamedTuple):
    """The candidates of an upload."""

    candidates: list[Candidate]
    notes: list[str] | None = None
    """Notes on the columns of a file; None if the body is JSON."""

    def describe(self, edited: Edited) -> Edited:
        """Return the result of the upload, with the notes on its file."""
        return edited if self.notes is None else FileEdited(**asdict(edited), notes=self.notes)


async def read_upload(
    request: Request, query: UploadQuery, limits: Limits, memory: Memory, threads: FairThreads
) -> Uploaded:
    """Return the candidates of a JSON array, of NDJSON, or of a file of any format.

    Lines of NDJSON are parsed as they arrive, in a thread.

    Raises:
        NotEnoughMemory: The candidates do not fit into memory.
        UnsupportedMedia: The content type is none of these, and the query names no file.
        InvalidRequest: Candidates are invalid; the error has their indexes, or the line of a file.
        BodyTooLarge: The body has more bytes than the limit.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if file := query.file or _FILE_MEDIA.get(media):
        content = BytesIO()
        with memory.admitted(0, "an upload") as admission:
            async for chunk in request.stream():
                admission.use(len(chunk))
                content.write(chunk)
            content.seek(0)
            encoding = query.encoding or _find_charset(request)
            of_file = _FileUpload(file, query, encoding, limits, memory)
            return await threads.run(of_file.read, content, admission)
    upload = _JsonUpload(limits)
    if media in {NDJSON, "application/jsonl", "application/ndjson"}:
        await _read_lines(request, upload, memory, threads)
    elif media == "application/json":
        await _run_in_thread(threads, memory, upload.add_array, await _read_array(request))
    else:
        raise UnsupportedMedia(
            f"send a JSON array as application/json, lines as {NDJSON}, or a file with its name in "
            "the query, such as ?file=replies.csv"
        )
    return Uploaded(upload.finish())


async def stream_progress(
    request: Request, work: Callable[[EncodingProgress], Awaitable[Edited]]
) -> AsyncIterator[bytes]:
    """Yield a line of progress for each step of the work, then a line with its result or problem.

    Closing the iterator cancels the work. The state of the request gets the status of the outcome,
    for the audit log: the answer began with 200.
    """
    request.state.outcome = CLIENT_LEFT
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    task = asyncio.ensure_future(
        work(lambda encoded, total: lines.put_nowait(_write_line(UploadStep(encoded, total))))
    )
    task.add_done_callback(lambda _: lines.put_nowait(None))
    try:
        while line := await lines.get():
            yield line
        outcome = _find_outcome(task)
        request.state.outcome = outcome.status if isinstance(outcome, Problem) else 200
        yield _write_line(outcome)
    finally:
        task.cancel()


def _find_outcome(task: "asyncio.Future[Edited]") -> Edited | Problem:
    try:
        return task.result()
    except ServiceError as error:
        return problem(locate_error(error, "body"))
    except Exception:
        _log.exception("an upload failed")
        return problem(ServiceError("the service failed unexpectedly"))


def _write_line(value: object) -> bytes:
    return to_json(value, exclude_none=True) + b"\n"


class _JsonUpload:
    """Collects the candidates of an upload of JSON, and their errors."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._candidates: list[Candidate] = []
        self._errors: list[FieldError] = []
        self._index = 0

    def add(self, item: Any) -> None:  # noqa: ANN401 - whatever the JSON holds
        """Add the next candidate."""
        loc = (self._index,)
        self._index += 1
        if isinstance(item, dict) and len(item) > _MOST_FIELDS:
            self._fail(FieldError(loc, f"{len(item)} fields are more than a candidate has"))
            return
        try:
            uploaded = UploadedCandidate.model_validate(item)
        except ValidationError as error:
            errors = join_errors(error.errors(include_input=False), item, loc).errors
            self._fail(*map(_explain_after, errors))
            return
        for field, message in find_excesses(uploaded):
            self._fail(FieldError((*loc, field), message))
        self._candidates.append(Candidate.uploaded(uploaded))
        if len(self._candidates) > (most := self.limits.max_pool_size):
            raise PoolFull(
                f"an upload may have {write_count(most, 'candidate')}; nothing was changed"
            )

    def add_array(self, body: bytes) -> None:
        """Add the candidates of a JSON array."""
        items = parse_json(body)
        if not isinstance(items, list):
            raise InvalidRequest.field("should be an array of candidates")
        for item in items:
            self.add(item)

    def add_lines(self, lines: bytes) -> None:
        """Add the candidates of whole lines of NDJSON; skip blank lines."""
        for line in filter(bytes.strip, lines.split(b"\n")):
            try:
                item = parse_json(line)
            except InvalidRequest as error:
                self._fail(FieldError((self._index,), error.errors[0].msg))
                self._index += 1
            else:
                self.add(item)

    def finish(self) -> list[Candidate]:
        """Return all candidates, or raise their errors."""
        self._stop_at_errors(1)
        return self._candidates

    def _fail(self, *errors: FieldError) -> None:
        self._errors.extend(errors)
        self._stop_at_errors(_MOST_ERRORS)

    def _stop_at_errors(self, count: int) -> None:
        if len(self._errors) >= count:
            raise InvalidRequest(self._errors, "; nothing was changed")


def _explain_after(error: FieldError) -> FieldError:
    """Return the error; that of a field `after` of a candidate also names the right place."""
    if error.loc[1:] != (AFTER,):
        return error
    return FieldError(error.loc, f"{error.msg}, but metadata.{AFTER} is one")


async def _read_array(request: Request) -> bytes:
    chunks = []
    left = _MOST_ARRAY_BYTES
    async for chunk in request.stream():
        chunks.append(chunk)
        left -= len(chunk)
        if left < 0:
            raise BodyTooLarge(
                f"an array may have {_MOST_ARRAY_BYTES} bytes; send more as lines of {NDJSON}"
            )
    return b"".join(chunks)


async def _read_lines(
    request: Request, upload: _JsonUpload, memory: Memory, threads: FairThreads
) -> None:
    rest = b""
    most = upload.limits.max_body_bytes
    async for chunk in request.stream():
        lines, end, rest = (rest + chunk).rpartition(b"\n")
        if end:
            await _run_in_thread(threads, memory, upload.add_lines, lines)
        if len(rest) > most:  # joining ever more chunks to it would take long
            raise InvalidRequest.field(f"a line has more than {most} bytes")
    await _run_in_thread(threads, memory, upload.add_lines, rest)


@dataclass(frozen=True, slots=True)
class _FileUpload:
    """Reads the candidates of a file in the body of a request."""

    name: str
    query: UploadQuery
    encoding: str | None
    limits: Limits
    memory: Memory

    def read(self, content: BytesIO, admission: Admission) -> Uploaded:
        """Return the candidates; raises InvalidRequest, BodyTooLarge and NotEnoughMemory."""
        reader = CandidateReader(_name_columns(self.query), self.encoding)
        most = self.limits.max_pool_size
        path = PurePath(self.name)
        try:
            if opener := COMPRESSED.get(path.suffix):
                content = self._decompress(opener(content), admission)
                path = path.with_suffix("")
            return Uploaded(*read_open_file(content, str(path), most, self.memory, reader))
        except DataError as error:
            what = error.advise(_name_parameter(error.option))
            raise InvalidRequest([FieldError((), what)], "; nothing was changed") from None
        except CORRUPT as error:
            raise InvalidRequest.field(f"{path}: corrupt or truncated: {error}") from None

    def _decompress(self, compressed: BinaryIO, admission: Admission) -> BytesIO:
        plain = BytesIO()
        most = self.limits.max_upload_bytes
        while chunk := compressed.read(_CHUNK):
            admission.use(len(chunk))
            plain.write(chunk)
            if plain.tell() > most:
                raise BodyTooLarge(f"a file may have {most} bytes when it is decompressed")
        return plain


def _find_charset(request: Request) -> str | None:
    """Return the encoding that the content type names."""
    header = Message()
    header["content-type"] = request.headers.get("content-type", "")
    return header.get_content_charset()


def _name_columns(query: UploadQuery) -> Columns:
    return Columns(
        query.text_column,
        query.examples_column,
        query.id_column,
        query.group_column,
        query.body_column,
        split_names(query.metadata_columns),
    )


def _name_parameter(option: str | None) -> str:
    """Return the parameter of the query for an option of `turnwise pool load`."""
    return "encoding=" if option == "encoding" else f"{option}_column="


async def _run_in_thread(
    threads: FairThreads, memory: Memory, parse: Callable[[bytes], None], body: bytes
) -> None:
    with memory.admitted(_PARSED * len(body), "an upload"):
        await threads.run(parse, body)
