"""`turnwise evaluate best-worst`: tuples to ask people about, and scores out of their answers."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

best_worst = typer.Typer(
    help="Best-worst scaling, for those who build a benchmark.", no_args_is_help=True
)

Written = Annotated[Path, typer.Option(help="File to write (.jsonl).")]


@best_worst.command()
def tuples(
    items: Annotated[Path, typer.Argument(help='The items, {"id", ...} a line.')],
    *,
    out: Written,
    seed: Annotated[int, typer.Option(help="Of the shuffles.")] = 0,
) -> None:
    """Write 2N tuples of three of the N items, each item in six of them."""
    from models.evaluation.best_worst import make_tuples, read_items  # noqa: PLC0415

    made = make_tuples(read_items(items), seed)
    _write(({"id": str(n), "items": three} for n, three in enumerate(made, start=1)), out)
    typer.echo(f"{len(made)} tuples written to {out}")


@best_worst.command()
def scores(
    answers: Annotated[
        Path, typer.Argument(help='Answers, {"items", "best", "worst", "annotator"} a line.')
    ],
    *,
    out: Written,
    seed: Annotated[int, typer.Option(help="Of the random halves.")] = 0,
) -> None:
    """Write a score from 0 to 1 for each item, and say how far the annotators agree."""
    from models.evaluation import agreement  # noqa: PLC0415
    from models.evaluation.best_worst import read_answers, score_items  # noqa: PLC0415

    read = read_answers(answers)
    scored = score_items(read)
    _write(({"id": item, "score": score} for item, score in scored.items()), out)
    ratings = agreement.ratings_of(read)
    half = agreement.split_half_reliability(read, seed=seed)
    for name, value in (
        ("Krippendorff's alpha, ordinal", agreement.krippendorff_alpha(ratings, "ordinal")),
        ("Krippendorff's alpha, nominal", agreement.krippendorff_alpha(ratings, "nominal")),
        (f"split-half reliability, {agreement.SPLITS} splits", half),
        ("the same, Spearman-Brown", None if half is None else agreement.spearman_brown(half)),
    ):
        typer.echo(f"{name}: {'not defined' if value is None else format(value, '.3f')}")
    typer.echo(f"{len(scored)} items, {len(read)} answers; scores written to {out}")


def _write(lines: Iterable[object], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
