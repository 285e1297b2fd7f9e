"""`turnwise evaluate best-worst`: tuples to ask people about, and scores from their answers."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.models.errors import name_files
from turnwise.models.text_files import write_jsonl
from turnwise.models.texts import write_count
from turnwise.service.cli.options import Written

best_worst = typer.Typer(help="Best-worst scaling, to build a benchmark.", no_args_is_help=True)


@best_worst.command()
def tuples(
    items: Annotated[Path, typer.Argument(help='The items, {"id", ...} a line.')],
    *,
    out: Written,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the shuffles.")] = 0,
) -> None:
    """Write 2N tuples of three items, from N items; each item is in six tuples."""
    from turnwise.models.evaluation.best_worst import make_tuples, read_items

    read = read_items(items)
    with name_files([items]):
        made = make_tuples(read, seed)
    write_jsonl(out, ({"id": str(n), "items": three} for n, three in enumerate(made, start=1)))
    typer.echo(f"{write_count(len(made), 'tuple')} written to {out}")


@best_worst.command()
def scores(
    annotations: Annotated[
        Path, typer.Argument(help='Annotations, {"items", "best", "worst", "annotator"} a line.')
    ],
    *,
    out: Written,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random halves.")] = 0,
) -> None:
    """Write a score from 0 to 1 for each item, and print how far the annotators agree."""
    from turnwise.models.evaluation import best_worst as task

    read = task.read_annotations(annotations)
    scored = task.score_items(read)
    write_jsonl(out, ({"id": item, "score": score} for item, score in scored.items()))
    ratings = task.ratings_of(read)
    choices = task.choices_of(read)
    half = task.split_half_reliability(read, seed)
    for name, value in (
        ("Krippendorff's alpha of answers", task.krippendorff_alpha(choices, "nominal")),
        ("questions with four fifths for one item", task.strong_agreement(choices)),
        ("Krippendorff's alpha of ratings, ordinal", task.krippendorff_alpha(ratings, "ordinal")),
        ("Krippendorff's alpha of ratings, nominal", task.krippendorff_alpha(ratings, "nominal")),
        (f"split-half reliability, {task.SPLITS} splits", half),
        ("the same, Spearman-Brown", None if half is None else task.spearman_brown(half)),
    ):
        typer.echo(f"{name}: {'not defined' if value is None else format(value, '.3f')}")
    typer.echo(
        f"{write_count(len(scored), 'item')}, {write_count(len(read), 'answer')}; scores written "
        f"to {out}"
    )
