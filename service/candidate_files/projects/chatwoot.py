"""Chatwoot: canned responses, as its API lists them."""

from typing import Any

from turnwise.service.candidate_files.projects.converted import Converted, find_records
from turnwise.service.candidate_files.projects.files import ProjectFiles


def is_project(files: ProjectFiles) -> bool:
    """Return whether there is one file of canned responses."""
    return len(files.names) == 1 and bool(_find_responses(files))


def convert(files: ProjectFiles, converted: Converted) -> None:
    """Add the canned responses of a file. They come without what users ask."""
    for response in _find_responses(files):
        code = response["short_code"]
        converted.add(response["content"], code, metadata={"short_code": code})


def _find_responses(files: ProjectFiles) -> list[dict[str, Any]]:
    (name,) = files.names
    if not name.lower().endswith(".json"):
        return []
    return find_records(files.json(name), "payload", {"short_code", "content"})
