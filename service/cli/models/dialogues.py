"""`turnwise dialogues`: rewrites conversations as a file of dialogues, and counts who speaks."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from turnwise.models.dialogue_files import DialogueFormat
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
    should be those of one speaker.
    """
    found = read_files(files, form=form)
    records = (
        {
            "id": dialogue.id,
            "utterances": [
                {"speaker": said.speaker, "text": said.text} for said in dialogue.utterances
            ],
        }
        for dialogue in found
    )
    count = write_jsonl(out, records)
    said = Counter(each.speaker for one in found for each in one.utterances)
    speakers = ", ".join(f"{number} by {name}" for name, number in said.most_common())
    typer.echo(f"{out}: {write_count(count, 'dialogue')}, utterances: {speakers}")
