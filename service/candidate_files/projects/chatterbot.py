"""ChatterBot: corpora of conversations. The second speaker's texts answer those before them."""

import re

from turnwise.service.candidate_files.projects.converted import Converted
from turnwise.service.candidate_files.projects.files import ProjectFiles

_CONVERSATIONS = re.compile(r"^conversations:", re.MULTILINE)


def is_project(files: ProjectFiles) -> bool:
    """Return whether a file has conversations."""
    return bool(_list_corpora(files))


def convert(files: ProjectFiles, converted: Converted) -> None:
    """Add the answers of all corpora; an answer that several have is one candidate."""
    examples: dict[str, list[str]] = {}
    categories: dict[str, dict[str, None]] = {}
    for name in _list_corpora(files):
        corpus = files.yaml(name)
        for conversation in corpus["conversations"]:
            said = [str(text).strip() for text in conversation]
            for question, answer in zip(said[::2], said[1::2], strict=False):
                examples.setdefault(answer, []).append(question)
                categories.setdefault(answer, {}).update(dict.fromkeys(corpus["categories"]))
    for answer, questions in examples.items():
        converted.add(answer, examples=questions, metadata={"categories": list(categories[answer])})


def _list_corpora(files: ProjectFiles) -> list[str]:
    names = files.ending_with(".yml", ".yaml")
    return [name for name in names if _CONVERSATIONS.search(files.text(name))]
