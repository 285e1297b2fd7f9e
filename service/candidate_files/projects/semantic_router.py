"""semantic-router: routes with their utterances. A route has no reply, only a description."""

from typing import Any

from turnwise.service.candidate_files.projects.converted import Converted, find_records
from turnwise.service.candidate_files.projects.files import ProjectFiles


def is_project(files: ProjectFiles) -> bool:
    """Return whether there is one file of routes."""
    return len(files.names) == 1 and bool(_find_routes(files))


def convert(files: ProjectFiles, converted: Converted) -> None:
    """Add the routes of a file. The text of a route is its description, or else its name."""
    for route in _find_routes(files):
        name = str(route["name"])
        converted.left_out["replies, which routes do not have: write them"].append(name)
        converted.add(
            route.get("description") or name,
            name,
            examples=[each for each in route["utterances"] if isinstance(each, str)],
            metadata={"route": name, **(route.get("metadata") or {})},
        )


def _find_routes(files: ProjectFiles) -> list[dict[str, Any]]:
    (name,) = files.names
    ending = name.rpartition(".")[2].lower()
    if ending not in {"json", "yml", "yaml"}:
        return []
    content = files.json(name) if ending == "json" else files.yaml(name)
    return find_records(content, "routes", {"name", "utterances"})
