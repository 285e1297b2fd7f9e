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
    default_retriever,
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
        Path | None, typer.Option(help="File of examples with their candidates, instead of --data.")
    ] = None,
    retriever: Annotated[
        str | None,
        typer.Option(
            help="Encoder that retrieves hard negatives as candidates; its own rows are at a "
            "disadvantage. By default the default of --base, or the shipped model without it.",
            metavar="FOLDER_OR_NAME",
        ),
    ] = None,
    generator: Annotated[
        str | None,
        typer.Option(
            help="Causal language model that samples the candidates, instead of hard negatives.",
            metavar="FOLDER_OR_NAME",
        ),
    ] = None,
    save_candidates: Annotated[
        Path | None,
        typer.Option(help="File to write the examples to, for --candidates.", callback=can_write),
    ] = None,
    history: Annotated[list[int], typer.Option(min=1, help="Lengths of contexts.")] = _HISTORIES,
    distance: Annotated[list[int], typer.Option(min=1, help="Goal distances.")] = _DISTANCES,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Find the reply that leads to a goal some turns ahead."""
    from turnwise.models.encoder import UtteranceEncoder  # noqa: PLC0415 - loads torch
    from turnwise.models.evaluation import short_term as task  # noqa: PLC0415
    from turnwise.models.evaluation.language_model import sampled_replies  # noqa: PLC0415
    from turnwise.models.evaluation.truncation import warn_of_truncation  # noqa: PLC0415
    from turnwise.service.commands.progress import SystemProgress  # noqa: PLC0415

    if (data is None) == (candidates is None):
        raise typer.BadParameter("give either --data or --candidates")
    if generator and candidates:
        raise typer.BadParameter("--candidates takes no --generator")
    loaded, note = encoders(model, base, precision), ""
    if candidates:
        examples = task.read_examples(candidates, limit)
        warn_of_truncation(loaded, task.texts_of_examples(examples, str(candidates)))
    else:
        dialogues = read(data or [], limit)
        warn_of_long_texts(loaded, data or [], dialogues, history)
        if generator:
            note = f"Candidates were sampled from {generator}."
            propose = sampled_replies(generator)
        else:
            retriever = retriever or default_retriever()
            note = f"Candidates were retrieved by {retriever}."
            known = loaded.get("base") if retriever == base else None
            encoder = known or UtteranceEncoder(retriever, precision=precision)
            propose = task.retrieved_replies(encoder, dialogues, history)
        with naming(data or []), SystemProgress() as bar:
            progress = partial(bar, "finding candidates")
            examples = task.make_examples(dialogues, history, distance, propose, progress)
    if save_candidates:
        task.write_examples(examples, save_candidates)
    rows = task.evaluate_short_term(loaded, examples)
    report("short-term", [candidates] if candidates else data or [], rows, out, note)
