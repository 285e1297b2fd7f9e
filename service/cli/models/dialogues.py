"""`turnwise dialogues`: rewrites conversations as a file of dialogues, and counts who speaks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from turnwise.models.data import Dialogue
from turnwise.models.dialogue_files import DialogueFormat, make_record
from turnwise.models.errors import DataError
from turnwise.models.text_files import write_jsonl
from turnwise.models.texts import write_count
from turnwise.service.cli.options import Written, read_files, read_format, with_options


@with_options(form=read_format)
def dialogues(
    files: Annotated[
        list[Path],
        typer.Argument(help="Conversations (.jsonl, .json, .csv, .tsv, .txt; .gz, .xz)."),
    ],
    *,
    out: Written,
    form: DialogueFormat,
) -> None:
    """Write conversations as the dialogues that train, evaluate and calibrate read.

    These commands read the same files. Look at the speakers that are counted: the pool's replies
    should be those of one speaker. Warnings name what is probably wrong.
    """
    found = read_files(files, form=form)
    if not found:
        raise DataError("has no dialogue", ", ".join(map(str, files)))
    count = write_jsonl(out, map(make_record, found))
    said = Counter(each.speaker for one in found for each in one.utterances)
    speakers = ", ".join(f"{number} by {name}" for name, number in said.most_common())
    typer.echo(f"{out}: {write_count(count, 'dialogue')}, utterances: {speakers}")
    for warning in find_doubts(found, said):
        typer.echo(f"warning: {warning}", err=True)


def find_doubts(dialogues: Sequence[Dialogue], said: Counter[str]) -> Iterator[str]:
    """Yield what is probably wrong with some dialogues.

    Args:
        dialogues: The dialogues.
        said: The number of utterances of each speaker.
    """
    spellings: dict[str, list[str]] = {}
    for speaker in said:
        spellings.setdefault(speaker.casefold(), []).append(speaker)
    for names in spellings.values():
        if len(names) > 1:
            yield (
                f"{' and '.join(names)} count as {len(names)} speakers: give them one name if they "
                "are one"
            )
    if unanswered := sum(len(one.utterances) == 1 for one in dialogues):
        count = write_count(unanswered, "dialogue has", "dialogues have")
        yield f"{count} a single utterance, so no reply to learn from"
    if repeated := len(dialogues) - len({one.utterances for one in dialogues}):
        count = write_count(repeated, "dialogue repeats", "dialogues repeat")
        yield f"{count} the utterances of an earlier one: keep copies together when you split them"
