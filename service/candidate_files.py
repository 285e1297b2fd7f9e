"""Files of candidates, as the client, the service and the command line read them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from turnwise.models.data import read_jsonl
from turnwise.models.errors import DataError
from turnwise.service.wire.pools import UploadedCandidate


def candidate_lines(path: Path) -> Iterator[UploadedCandidate]:
    """Yield the candidates of a JSON Lines file; only `text` is required.

    Raises:
        DataError: The file cannot be read, or a line is not a candidate.
    """
    for number, record in read_jsonl(path):
        yield read_candidate(record, str(path), number)


def read_candidate(
    record: Mapping[str, Any], file: str, line: int | None = None
) -> UploadedCandidate:
    """Return the candidate of a record; fields that are null count as left out.

    Raises:
        DataError: The record is not a candidate; the error names the file, the line and the field.
    """
    given = {name: value for name, value in record.items() if value is not None}
    try:
        candidate = UploadedCandidate.model_validate(given, extra="ignore")
        # Python's parser accepts NaN and lone surrogates, which JSON answers cannot hold.
        json.dumps(candidate.metadata, allow_nan=False, ensure_ascii=False).encode()
    except ValidationError as error:
        (field, *_) = error.errors()[0]["loc"]
        wrong = error.errors()[0]["msg"]
        raise DataError(f"not a candidate: {wrong}", file, line, str(field)) from None
    except (TypeError, ValueError) as error:
        raise DataError(f"not a candidate: {error}", file, line, "metadata") from None
    return candidate
