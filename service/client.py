"""Uploads to a running service, over HTTP."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from models.dialogue import read_jsonl
from models.errors import DataError, TurnwiseError
from service.pools import read_candidates

_NDJSON = "application/x-ndjson"
_SECONDS = 30.0

Progress = Callable[[int, int], None]


class RefusedError(TurnwiseError):
    """The service answered with a problem, or cannot be reached."""


class _ProblemError(RefusedError):
    """The service answered with a problem document."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(f"{problem.get('title')}: {problem.get('detail')}")
        self.problem = problem


def upload(
    file: Path, name: str, *, url: str, key: str | None = None, progress: Progress
) -> dict[str, Any]:
    """Make one version of a pool out of a file's candidates; create the pool where there is none.

    Returns:
        The service's answer: `version`, `upserted`, `unchanged`, `size`.

    Raises:
        DataError: A line of the file is not a candidate, or not one that the service takes.
        RefusedError: The service says no, or cannot be reached.
    """
    body = b"".join(json.dumps(asdict(c)).encode() + b"\n" for c in read_candidates(file))
    path = f"/pools/{quote(name, safe='')}"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with _reached(url), httpx.Client(base_url=url, headers=headers, timeout=_SECONDS) as client:
        if client.get(path).status_code != HTTPStatus.OK:  # a PUT would forget its description
            _accepted(client.put(path, json={}))
        try:
            return _send(client, f"{path}/candidates", body, progress)
        except _ProblemError as error:
            raise _in_file(error, file) from None


def _send(client: httpx.Client, path: str, body: bytes, progress: Progress) -> dict[str, Any]:
    """Put the candidates, and read lines of progress until one that says what came of it."""
    headers = {"Content-Type": _NDJSON, "Accept": _NDJSON}
    # Nothing is heard while a batch of an upload waits for turns that come before it.
    timeout = httpx.Timeout(_SECONDS, read=None)
    with client.stream("PUT", path, content=body, headers=headers, timeout=timeout) as response:
        if response.is_error:
            response.read()
        _accepted(response)
        for event in _events(response):
            if "encoded" in event:
                progress(event["encoded"], event["total"])
            elif "status" in event:
                raise _ProblemError(event)
            else:
                return event
    raise RefusedError("the service broke off before it had said what came of the upload")


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line:
            yield json.loads(line)


def _accepted(response: httpx.Response) -> None:
    if not response.is_error:
        return
    if response.headers.get("content-type") == "application/problem+json":
        raise _ProblemError(response.json())
    raise RefusedError(f"{response.url} answers {response.status_code}: is it a turnwise service?")


def _in_file(error: _ProblemError, file: Path) -> TurnwiseError:
    """Name the line of the file where the problem is with a candidate."""
    for wrong in error.problem.get("errors", ()):
        match wrong["loc"]:
            case ["body", int(place), *field]:
                line, _ = next(islice(read_jsonl(file), place, None))
                return DataError(wrong["msg"], str(file), line, ".".join(map(str, field)) or None)
    return error


@contextmanager
def _reached(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, json.JSONDecodeError) as error:
        raise RefusedError(f"{url} cannot be reached: {error}") from None
