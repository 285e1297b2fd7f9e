"""Dialogflow ES: the text responses of intents, with their training phrases."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from turnwise.service.candidate_files.projects.converted import Converted
from turnwise.service.candidate_files.projects.files import ProjectFiles

_PHRASES = "_usersays_"
_TEXT = (0, "0", "message")
"""The type of a text response, as exports of different years write it."""


def is_project(files: ProjectFiles) -> bool:
    """Return whether there is an agent with intents."""
    return any(_is_in_intents(name) for name in files.names) and any(
        PurePosixPath(name).name == "agent.json" for name in files.names
    )


def convert(files: ProjectFiles, converted: Converted) -> None:
    """Add the responses of all intents. Those of one language are wordings of one answer."""
    agent = next(name for name in files.names if PurePosixPath(name).name == "agent.json")
    usual = str(files.json(agent).get("language", "en"))
    names = [name for name in filter(_is_in_intents, files.names) if _PHRASES not in name]
    intents = map(files.json, names)
    labels = {each["id"]: str(each["name"]) for each in intents if "id" in each}
    for name in names:
        intent = files.json(name)
        label = str(intent["name"])
        texts = list(_read_texts(intent, label, usual, converted))
        if intent.get("fallbackIntent"):
            converted.left_out["fallback intents (see the pool's `fallback`)"].append(label)
        elif not texts:
            converted.left_out["intents without a text"].append(label)
        else:
            languages = dict.fromkeys(language for language, _ in texts)
            phrases = {each: _read_phrases(files, name, intent, each) for each in languages}
            _add_intent(converted, intent, texts, phrases, labels.get(intent.get("parentId")))


def _add_intent(
    converted: Converted,
    intent: dict[str, Any],
    texts: list[tuple[str, str]],
    phrases: dict[str, list[str]],
    parent: str | None,
) -> None:
    """Add the texts of an intent. The first of each language has the phrases of the language.

    A follow-up intent follows the texts of its parent, by their first id or their group.
    """
    label = str(intent["name"])
    for number, (language, text) in enumerate(texts, start=1):
        converted.add(
            text,
            label if number == 1 else f"{label}-{number}",
            examples=phrases.pop(language, ()),
            group=f"{label} {language}" if len(texts) > 1 else None,
            metadata={
                "intent": label,
                "language": language,
                "contexts": intent.get("contexts"),
                "after": [parent, f"{parent} {language}"] if parent else [],
            },
        )


def _is_in_intents(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parent.name == "intents" and path.suffix == ".json"


def _read_texts(
    intent: dict[str, Any], label: str, usual: str, converted: Converted
) -> Iterator[tuple[str, str]]:
    """Yield the language and the text of each response."""
    for response in intent.get("responses") or ():
        for message in response.get("messages") or ():
            if message.get("type") not in _TEXT:
                converted.left_out["responses that are not text"].append(label)
                continue
            speech = message.get("speech") or []
            for text in [speech] if isinstance(speech, str) else speech:
                yield str(message.get("lang") or usual), text


def _read_phrases(
    files: ProjectFiles, name: str, intent: dict[str, Any], language: str
) -> list[str]:
    """Return the training phrases of an intent; old exports have them in the intent itself."""
    phrases = f"{name.removesuffix('.json')}{_PHRASES}{language}.json"
    found = files.json(phrases) if phrases in files.names else intent.get("userSays") or ()
    return ["".join(str(part.get("text", "")) for part in each.get("data") or ()) for each in found]
