"""NeMo Guardrails' Colang 1.0: bot messages, with the user messages that flows answer by them."""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from turnwise.service.candidate_files.projects.converted import Converted
from turnwise.service.candidate_files.projects.files import ProjectFiles

_DEFINE = re.compile(r"define\s+(user|bot|(?:extension\s+)?flow|subflow)\b\s*(.*)")
_STEP = re.compile(r"(user|bot)\s+(.+)")
_QUOTED = re.compile(r"([\"'])(.*)\1")
_IS_COLANG_1 = re.compile(r"^define\s+(user|bot|flow)\b", re.MULTILINE)


def is_project(files: ProjectFiles) -> bool:
    """Return whether a file defines messages or flows as Colang 1.0 does."""
    return any(_IS_COLANG_1.search(files.text(name)) for name in files.ending_with(".co"))


@dataclass(slots=True)
class _Scripts:
    """The definitions in the files of a project.

    Attributes:
        texts: The texts of each message, by who says it: `user` or `bot`.
        answers: The bot messages that follow a user message at once.
        after: The bot messages that each bot message follows, with a user message between them.
        others: The other steps of flows.
    """

    texts: dict[str, dict[str, list[str]]] = field(default_factory=lambda: {"user": {}, "bot": {}})
    answers: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    after: defaultdict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    others: list[str] = field(default_factory=list)

    def read(self, content: str) -> None:
        """Add what a file defines."""
        in_flow = False
        # The message to which texts in quotes belong, and who says it.
        speaker = ""
        message = ""
        # The user message of the step before, if it is one, and the newest bot message of the flow.
        asked = ""
        answered = ""
        for line in map(str.strip, content.splitlines()):
            if not line or line.startswith("#"):
                continue
            if defined := _DEFINE.fullmatch(line):
                in_flow = defined[1].endswith("flow")
                speaker = "" if in_flow else defined[1]
                message = "" if in_flow else defined[2]
                asked = ""
                answered = ""
            elif text := _QUOTED.fullmatch(line):
                self._add_text(speaker, message, text[2])
            elif in_flow and (step := _STEP.fullmatch(line)):
                speaker = step[1]
                message = self._name(speaker, step[2])
                if speaker == "user":
                    asked = message
                    continue
                if asked:
                    self.answers[asked][message] = None
                    if answered:
                        self.after[message][answered] = None
                asked = ""
                answered = message
            elif in_flow:
                asked = ""
                answered = ""
                self.others.append(line)

    def _name(self, speaker: str, message: str) -> str:
        """Return the name of a message in a flow. A text in quotes is a message of that name."""
        if text := _QUOTED.fullmatch(message):
            self._add_text(speaker, text[2], text[2])
            return text[2]
        return message

    def _add_text(self, speaker: str, message: str, text: str) -> None:
        if speaker:
            self.texts[speaker].setdefault(message, []).append(text)


def convert(files: ProjectFiles, converted: Converted) -> None:
    """Add the bot messages of a project. Variations of a message are wordings of one answer."""
    scripts = _Scripts()
    for name in files.ending_with(".co"):
        scripts.read(files.text(name))
    examples: defaultdict[str, list[str]] = defaultdict(list)
    for user, said in scripts.texts["user"].items():
        if user not in scripts.answers:
            converted.left_out["user messages that no flow answers at once"].append(user)
        for bot in scripts.answers.get(user, ()):
            examples[bot] += said
    for bot in examples.keys() - scripts.texts["bot"].keys():
        converted.left_out["bot messages without a text"].append(bot)
    for line in scripts.others:
        converted.left_out["steps of flows that are not messages"].append(line)
    for bot, wordings in scripts.texts["bot"].items():
        for number, text in enumerate(wordings, start=1):
            converted.add(
                text,
                bot if number == 1 else f"{bot} {number}",
                examples=examples[bot] if number == 1 else (),
                group=bot if len(wordings) > 1 else None,
                metadata={"message": bot, "after": list(scripts.after[bot])},
            )
