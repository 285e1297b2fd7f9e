"""Rasa: the responses of the domain, with the examples of the intents that lead to them.

Rules, stories and forms say which response follows which one.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from turnwise.service.candidate_files.projects.converted import Converted
from turnwise.service.candidate_files.projects.files import ProjectFiles

_SECTION = re.compile(r"^(responses|templates|nlu|rules|stories|forms):", re.MULTILINE)
_ENTITY = re.compile(r"\[([^\]]+)\](?:\([^)]*\)|\{[^}]*\})")
"""An annotated entity of an example, such as `[Bonn](city)`."""
_METADATA = ("channel", "condition", "buttons", "quick_replies", "image", "attachment")
_UTTER = "utter_"


def is_project(files: ProjectFiles) -> bool:
    """Return whether a file has responses."""
    return any("responses" in found or "templates" in found for _, found in _find_sections(files))


@dataclass(slots=True)
class _Project:
    """The contents of the files of a project.

    Attributes:
        responses: The wordings of each response.
        examples: The examples of each intent.
        replies: The responses that follow each intent at the start of rules and stories.
        after: The responses that each response follows, with a message of the user between them.
        forms: The slots of each form, in order.
    """

    responses: dict[str, object] = field(default_factory=dict)
    examples: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    replies: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    after: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    forms: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, files: ProjectFiles) -> "_Project":
        """Read the files with sections of Rasa, and the examples of Rasa 1."""
        project = cls()
        for name, _ in _find_sections(files):
            document = files.yaml(name)
            if isinstance(document, dict):
                project._add(document)
        for name in files.ending_with(".md"):
            for intent, example in _read_markdown(files.text(name)):
                project.examples[intent].append(example)
        return project

    def _add(self, document: Mapping[str, Any]) -> None:
        for section in ("responses", "templates"):
            if isinstance(found := document.get(section), dict):
                self.responses |= found
        for item in _items(document.get("nlu")):
            if "intent" in item:  # and no synonym, or lookup table
                self.examples[str(item["intent"])] += _read_examples(item.get("examples"))
        for story in [*_items(document.get("rules")), *_items(document.get("stories"))]:
            for intent, response in _find_reply(story):
                self.replies[intent][response] = None
            for reply, follower in _find_followers(story):
                self.after[follower][reply] = None
        if isinstance(forms := document.get("forms"), dict):
            self.forms |= {name: _read_slots(form) for name, form in forms.items()}

    def list_replies(self, intent: str) -> list[str]:
        """Return the responses to an intent.

        A retrieval intent leads to the response of its name. Another intent leads to what follows
        it in rules and stories, or else to the response of its name.
        """
        is_retrieval = "/" in intent
        responses = [] if is_retrieval else list(self.replies[intent])
        if not responses:
            responses = [f"{_UTTER}{intent}"]
        return [response for response in responses if response in self.responses]

    def list_after(self, response: str) -> list[str]:
        """Return the responses that a response follows, in rules and stories or in a form."""
        after = list(self.after[response])
        for form, slots in self.forms.items():
            questions = [self._ask(form, slot) for slot in slots]
            after += [before for before, asked in pairwise(questions) if asked == response]
        return list(dict.fromkeys(after))

    def _ask(self, form: str, slot: str) -> str:
        """Return the response that asks for a slot of a form: its own one if there is one."""
        own = f"{_UTTER}ask_{form}_{slot}"
        return own if own in self.responses else f"{_UTTER}ask_{slot}"


def convert(files: ProjectFiles, converted: Converted) -> None:
    """Add the responses of a project, with the examples of the intents that lead to them."""
    project = _Project.read(files)
    examples: defaultdict[str, list[str]] = defaultdict(list)
    intents: defaultdict[str, list[str]] = defaultdict(list)
    for intent, said in project.examples.items():
        replies = project.list_replies(intent)
        if not replies:
            converted.left_out["intents that lead to no response"].append(intent)
        for response in replies:
            examples[response] += said
            intents[response].append(intent)
    for response, wordings in project.responses.items():
        shared = {
            "response": response,
            "intent": ", ".join(intents[response]),
            "after": project.list_after(response),
        }
        _add_response(converted, wordings, examples[response], shared)


def _add_response(
    converted: Converted, wordings: object, examples: list[str], shared: Mapping[str, object]
) -> None:
    """Add the wordings of a response. The first for each channel and condition has the examples."""
    name = str(shared["response"])
    variations = list(_items(wordings))
    group = name if len(variations) > 1 else None
    seen: list[object] = []
    for number, variation in enumerate(variations, start=1):
        place = (variation.get("channel"), variation.get("condition"))
        is_first = place not in seen
        seen.append(place)
        id = name if number == 1 else f"{name}-{number}"
        metadata = {**shared, **{key: variation.get(key) for key in _METADATA}}
        if "custom" in variation:
            converted.left_out["custom payloads"].append(id)
        converted.add(
            variation.get("text"),
            id,
            examples=examples if is_first else (),
            group=group,
            metadata=metadata,
        )


def _find_sections(files: ProjectFiles) -> Iterator[tuple[str, set[str]]]:
    """Yield the files with sections of Rasa, and their sections.

    Only the lines are searched: other files, such as templates, may be no valid YAML.
    """
    for name in files.ending_with(".yml", ".yaml"):
        if found := set(_SECTION.findall(files.text(name))):
            yield name, found


def _find_reply(story: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the intents at the start of a rule or a story, and the response that follows them."""
    for step, after in pairwise(_items(story.get("steps"))):
        if "intent" not in step and "or" not in step:
            continue
        response = str(after.get("action", ""))
        if response.startswith(_UTTER):
            alternatives = _items(step["or"]) if "or" in step else [step]
            for alternative in alternatives:
                yield str(alternative.get("intent", "")), response
        return


def _find_followers(story: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield pairs of responses: what is said last before a message of the user, and first after."""
    said = ""
    before = ""
    for step in _items(story.get("steps")):
        action = str(step.get("action", ""))
        if step.keys() & {"intent", "user", "or"}:
            before = said
        elif action.startswith(_UTTER):
            if before:
                yield before, action
            said = action
            before = ""


def _read_slots(form: object) -> list[str]:
    """Return the slots of a form; in Rasa 2 they are the keys of an object, or of the form."""
    slots = form.get("required_slots", form) if isinstance(form, dict) else ()
    return list(map(str, slots)) if isinstance(slots, dict | list) else []


def _read_examples(examples: object) -> list[str]:
    if isinstance(examples, str):
        lines = (line.strip() for line in examples.splitlines())
        found = (line.removeprefix("-") for line in lines if line.startswith("-"))
    else:
        found = (str(item.get("text", "")).lstrip("- ") for item in _items(examples))
    return [text for each in found if (text := _ENTITY.sub(r"\1", each).strip())]


def _read_markdown(text: str) -> Iterator[tuple[str, str]]:
    """Yield intents and examples in the format of Rasa 1."""
    intent = ""
    for line in text.splitlines():
        if line.startswith("##"):
            kind, _, intent = line.lstrip("# ").partition(":")
            intent = intent.strip() if kind.strip() == "intent" else ""
        elif intent and line.startswith(("- ", "* ")):
            yield intent, _ENTITY.sub(r"\1", line[2:]).strip()


def _items(value: object) -> Iterable[dict[str, Any]]:
    """Return the dictionaries of a list; nothing if it is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
