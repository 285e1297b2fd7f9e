"""QnA Maker and Custom Question Answering: answers with their questions, metadata and prompts."""

import csv
from typing import Any

from turnwise.service.candidate_files.projects.converted import Converted, fold_keys
from turnwise.service.candidate_files.projects.files import ProjectFiles

_LISTS = ("qnalist", "qnadocuments", "qnas", "value")


def is_project(files: ProjectFiles) -> bool:
    """Return whether there is one file of questions and answers."""
    if len(files.names) != 1:
        return False
    (name,) = files.names
    if name.lower().endswith(".tsv"):
        return {"question", "answer"} <= set(_header(files.text(name)))
    return name.lower().endswith(".json") and bool(_find_list(files.json(name)))


def convert(files: ProjectFiles, converted: Converted) -> None:
    """Add the answers of a file."""
    (name,) = files.names
    if name.lower().endswith(".tsv"):
        _convert_table(files.text(name), converted)
        return
    for each in _find_list(files.json(name)):
        pair = fold_keys(each)
        context = fold_keys(pair.get("context") or pair.get("dialog") or {})
        if context.get("iscontextonly"):
            converted.left_out["answers that need what was said before"].append(str(pair["answer"]))
        converted.add(
            pair.get("answer"),
            pair.get("id"),
            examples=pair.get("questions") or (),
            metadata={
                "source": pair.get("source"),
                "prompts": _list_prompts(context),
                **_read_metadata(pair.get("metadata")),
            },
        )


def _header(text: str) -> list[str]:
    return text.partition("\n")[0].strip().lower().split("\t")


def _convert_table(text: str, converted: Converted) -> None:
    """Add the answers of a table, which has a row for each question."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    questions: dict[tuple[str, str], list[str]] = {}
    for row in csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE):
        cells = fold_keys({key: value or "" for key, value in row.items() if key})
        answer = cells.get("answer", "").replace("\\n", "\n")
        key = (cells.get("qnaid", ""), answer)
        rows.setdefault(key, cells)
        questions.setdefault(key, []).append(cells.get("question", ""))
    for (_, answer), cells in rows.items():
        pairs = (each.partition(":") for each in cells.get("metadata", "").split("|") if each)
        converted.add(
            answer,
            cells.get("qnaid") or None,
            examples=filter(None, questions[cells.get("qnaid", ""), answer]),
            metadata={
                "source": cells.get("source"),
                **{name.strip(): value.strip() for name, _, value in pairs},
            },
        )


def _find_list(content: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - whatever the JSON holds
    """Return the list of questions and answers, wherever an export has it."""
    if isinstance(content, list):
        found = [each for each in content if isinstance(each, dict)]
        return found if found and {"questions", "answer"} <= set(fold_keys(found[0])) else []
    if not isinstance(content, dict):
        return []
    folded = fold_keys(content)
    if "assets" in folded:
        return _find_list(folded["assets"])
    return next((_find_list(folded[name]) for name in _LISTS if name in folded), [])


def _read_metadata(metadata: object) -> dict[str, Any]:
    """Return metadata, which are an object or a list of names and values."""
    if isinstance(metadata, dict):
        return metadata
    pairs = (fold_keys(each) for each in metadata) if isinstance(metadata, list) else ()
    return {str(pair.get("name")): pair.get("value") for pair in pairs}


def _list_prompts(context: dict[str, Any]) -> list[str]:
    """Return the texts of the buttons that follow an answer."""
    return [str(fold_keys(each).get("displaytext", "")) for each in context.get("prompts") or ()]
