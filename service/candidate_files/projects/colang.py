"""NeMo Guardrails' Colang 1.0: bot messages, with the user messages that flows answer by them."""

import re
from collections import defaultdict

from turnwise.service.candidate_files.projects.converted import Converted
from turnwise.service.candidate_files.projects.files import ProjectFiles

_DEFINE = re.compile(r"define\s+(user|bot|(?:extension\s+)?flow|subflow)\b\s*(.*)")
_STEP = re.compile(r"(user|bot)\s+(.+)")
_QUOTED = re.compile(r"([\"'])(.*)\1")
_IS_COLANG_1 = re.compile(r"^define\s+(user|bot|flow)\b", re.MULTILINE)


def is_project(files: ProjectFiles) -> bool:
    """Return whether a file defines messages or flows as Colang 1.0 does."""
    return any(_IS_COLANG_1.search(files.text(name)) for name in files.ending_with(".co"))


def convert(files: ProjectFiles, converted: Converted) -> None:
    """Add the bot messages of a project. Variations of a message are wordings of one answer."""
    texts: dict[str, dict[str, list[str]]] = {"user": {}, "bot": {}}
    answers: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for name in files.ending_with(".co"):
        _read_file(files.text(name), texts, answers, converted)
    examples: defaultdict[str, list[str]] = defaultdict(list)
    for user, said in texts["user"].items():
        if said and not answers[user]:
            converted.left_out["user messages that no flow answers at once"].append(user)
        for bot in answers[user]:
            examples[bot] += said
    for bot in {bot for bots in answers.values() for bot in bots} - set(texts["bot"]):
        converted.left_out["bot messages without a text"].append(bot)
    for bot, wordings in texts["bot"].items():
        for number, text in enumerate(wordings, start=1):
            converted.add(
                text,
                bot if number == 1 else f"{bot} {number}",
                examples=examples[bot] if number == 1 else (),
                group=bot if len(wordings) > 1 else None,
                metadata={"message": bot},
            )


def _read_file(
    content: str,
    texts: dict[str, dict[str, list[str]]],
    answers: defaultdict[str, dict[str, None]],
    converted: Converted,
) -> None:
    """Collect the messages of a file, and which bot message follows a user message at once."""
    kind = ""
    message = ("", "")
    said = ""
    for line in map(str.strip, content.splitlines()):
        if not line or line.startswith("#"):
            continue
        if defined := _DEFINE.fullmatch(line):
            kind = defined[1]
            message = (kind, defined[2])
            said = ""
            if kind in texts:
                texts[kind].setdefault(defined[2], [])
        elif quoted := _QUOTED.fullmatch(line):
            if message[0] in texts:
                texts[message[0]].setdefault(message[1], []).append(quoted[2])
        elif kind.endswith("flow") and (step := _STEP.fullmatch(line)):
            name = step[2]
            if quoted := _QUOTED.fullmatch(name):
                name = quoted[2]
                texts[step[1]].setdefault(name, []).append(name)
            message = (step[1], name)
            if step[1] == "bot" and said:
                answers[said][name] = None
            said = name if step[1] == "user" else ""
        elif kind:
            said = ""
            converted.left_out["steps of flows that are not messages"].append(line)
