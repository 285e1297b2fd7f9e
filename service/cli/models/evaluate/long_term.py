"""`turnwise evaluate long-term`."""

from collections import Counter
from pathlib import Path

import typer

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.errors import name_files
from turnwise.models.evaluation.long_term import Setting, evaluate_long_term, make_goal_sets
from turnwise.models.evaluation.truncation import warn_of_long_dialogues
from turnwise.service.cli.models.evaluate.loading import load_encoders
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report
from turnwise.service.cli.options import read_files


def measure(
    data: list[Path],
    form: DialogueFormat,
    settings: list[str],
    compared: Compared,
    *,
    out: Path | None,
    limit: int | None,
) -> None:
    """Put three goals into the order in which the dialogue reached them."""
    read = list(map(_read_setting, settings))
    dialogues = read_files(data, limit, form)
    with name_files(data):
        goal_sets = make_goal_sets(dialogues, read)
    encoders = load_encoders(compared)
    warn_of_long_dialogues(encoders, data, dialogues, {setting.context for setting in read})
    rows = evaluate_long_term(encoders, goal_sets)
    counts = Counter(str(goals.setting) for goals in goal_sets)
    each = ", ".join(f"{count} ({setting})" for setting, count in counts.items())
    report("long-term", data, rows, out, f"Sets of goals: {each}.")


def _read_setting(text: str) -> Setting:
    try:
        context, distance, first_in = map(int, text.split(","))
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not three whole numbers, such as 2,2,0") from None
    if context < 1 or distance < 1 or first_in < 0:
        raise typer.BadParameter(f"'{text}': context and distance start at 1, the last at 0")
    return Setting(context, distance, first_in)
