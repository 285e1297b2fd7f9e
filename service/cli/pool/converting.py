"""`turnwise pool convert`: makes a file of candidates of a project of another tool."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.models.texts import write_count
from turnwise.service.cli.options import Written


def convert(
    project: Annotated[
        Path,
        typer.Argument(
            help="Folder, zip archive or file of Rasa, Colang 1.0, Dialogflow ES, QnA Maker, "
            "semantic-router, ChatterBot or Chatwoot."
        ),
    ],
    *,
    out: Written,
) -> None:
    """Write the replies of a project of another tool as a file of candidates.

    The command says what it leaves out. Read the file before you load it with `turnwise pool load`.
    """
    from turnwise.models.text_files import write_jsonl
    from turnwise.service.candidate_files.projects import convert_project
    from turnwise.service.candidate_files.reader import CandidateReader

    converted = convert_project(project)
    reader = CandidateReader()
    rows = reader.merge(
        reader.read_record(record, str(project), None) for record in converted.records
    )
    candidates = [row.candidate for row in rows]
    write_jsonl(out, (candidate.model_dump(exclude_defaults=True) for candidate in candidates))
    for line in converted.report():
        typer.echo(line)
    if left_out := sum(row.left_out for row in rows):
        typer.echo(f"examples beyond those that a candidate may have: {left_out}")
    examples = sum(len(candidate.examples) for candidate in candidates)
    typer.echo(
        f"{out}: {write_count(len(candidates), 'candidate')} with "
        f"{write_count(examples, 'example')}, from {converted.tool}"
    )
