"""QnA Maker and Custom Question Answering: answers with their questions, metadata and prompts."""

import csv
import json
from collections import defaultdict
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
        header = files.text(name).partition("\n")[0].strip().lower().split("\t")
        return {"question", "answer"} <= set(header)
    return name.lower().endswith(".json") and bool(_find_list(files.json(name)))


def convert(files: ProjectFiles, converted: Converted) -> None:
    """Add the answers of a file."""
    (name,) = files.names
    is_table = name.lower().endswith(".tsv")
    pairs = _read_table(files.text(name)) if is_table else _find_list(files.json(name))
    after = defaultdict[str, list[str]](list)
    for pair in map(fold_keys, pairs):
        for prompt in _list_prompts(_context_of(pair)):
            after[str(prompt.get("qnaid"))].append(str(pair.get("id")))
    for pair in map(fold_keys, pairs):
        context = _context_of(pair)
        replies = after[str(pair.get("id"))] if pair.get("id") else []
        if context.get("iscontextonly") and not replies:
            converted.left_out["answers that need what was said before"].append(str(pair["answer"]))
        converted.add(
            pair.get("answer"),
            pair.get("id") or None,  # 0 in a file that was not imported yet
            examples=filter(None, pair.get("questions") or ()),
            metadata={
                "source": pair.get("source"),
                "prompts": [str(each.get("displaytext", "")) for each in _list_prompts(context)],
                "after": replies,
                **_read_metadata(pair.get("metadata")),
            },
        )


def _read_table(text: str) -> list[dict[str, Any]]:
    """Return the questions and answers of a table, which has a row for each question, as JSON."""
    pairs: dict[tuple[str, str], dict[str, Any]] = {}
    for row in csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE):
        cells = fold_keys({key: value or "" for key, value in row.items() if key})
        id = cells.get("qnaid", "")
        answer = cells.get("answer", "").replace("\\n", "\n")
        metadata = (each.partition(":") for each in cells.get("metadata", "").split("|") if each)
        pair = {
            "id": id,
            "answer": answer,
            "questions": [],
            "source": cells.get("source"),
            "metadata": {name.strip(): value.strip() for name, _, value in metadata},
            "context": {
                "isContextOnly": cells.get("iscontextonly", "").lower() == "true",
                "prompts": json.loads(cells.get("prompts") or "[]"),
            },
        }
        pairs.setdefault((id, answer), pair)["questions"].append(cells.get("question", ""))
    return list(pairs.values())


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


def _context_of(pair: dict[str, Any]) -> dict[str, Any]:
    return fold_keys(pair.get("context") or pair.get("dialog") or {})


def _list_prompts(context: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the buttons that follow an answer; each has a text, and the answer to it."""
    return list(map(fold_keys, context.get("prompts") or ()))
