"""`turnwise evaluate short-term`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from turnwise.models.errors import naming
from turnwise.service.commands.evaluate.options import (
    BASE,
    DATA_HELP,
    Arithmetic,
    Base,
    Limit,
    Models,
    Out,
    can_write,
    encoders,
    read,
    report,
    warn_of_long_texts,
)

_HISTORIES = [2, 5, 10]
_DISTANCES = [1, 2, 3, 4]


def short_term(
    *,
    data: Annotated[
        list[Path] | None, typer.Option("--data", help=DATA_HELP, metavar="FILE ...")
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="File of problems with their candidates, instead of --data.")
    ] = None,
    retriever: Annotated[
        str,
        typer.Option(
            help="Encoder that retrieves hard negatives as candidates; its own rows are at a "
            "disadvantage.",
            metavar="FOLDER_OR_NAME",
        ),
    ] = BASE,
    generator: Annotated[
        str | None,
        typer.Option(
            help="Causal language model to sample candidates from, not hard negatives.",
            metavar="FOLDER_OR_NAME",
        ),
    ] = None,
    save_candidates: Annotated[
        Path | None,
        typer.Option(help="File to write the problems to, for --candidates.", callback=can_write),
    ] = None,
    history: Annotated[list[int], typer.Option(min=1, help="History lengths.")] = _HISTORIES,
    distance: Annotated[list[int], typer.Option(min=1, help="Goal distances.")] = _DISTANCES,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Find the reply that leads to a goal some turns ahead."""
    from turnwise.models import evaluation  # noqa: PLC0415 - loads torch
    from turnwise.models.encoder import UtteranceEncoder  # noqa: PLC0415
    from turnwise.models.evaluation.short_term_problems import placed_texts  # noqa: PLC0415
    from turnwise.models.evaluation.truncation import warn_of_truncation  # noqa: PLC0415
    from turnwise.service.commands.evaluate.progress import SystemProgress  # noqa: PLC0415

    if (data is None) == (candidates is None):
        raise typer.BadParameter("give either --data or --candidates")
    if generator and candidates:
        raise typer.BadParameter("--candidates are there already: leave out --generator")
    loaded, note = encoders(model, base, precision), ""
    if candidates:
        problems = evaluation.read_problems(candidates, limit)
        warn_of_truncation(loaded, placed_texts(problems, str(candidates)))
    else:
        dialogues = read(data or [], limit)
        warn_of_long_texts(loaded, data or [], dialogues, history)
        if generator:
            note = f"Candidates were sampled from {generator}."
            propose = evaluation.sampled_replies(generator)
        else:
            note = f"Candidates were retrieved by {retriever}."
            known = loaded.get("base") if retriever == base else None
            encoder = known or UtteranceEncoder(retriever, precision=precision)
            propose = evaluation.retrieved_replies(encoder, dialogues, history)
        with naming(data or []), SystemProgress() as bar:
            told = partial(bar, "finding candidates")
            problems = evaluation.make_problems(dialogues, history, distance, propose, told)
    if save_candidates:
        evaluation.write_problems(problems, save_candidates)
    rows = evaluation.evaluate_short_term(loaded, problems)
    report("short-term", [candidates] if candidates else data or [], rows, out, note)
