"""`turnwise evaluate ranking`, and `build-ranking`, which makes its task."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import track

from turnwise.models.errors import naming
from turnwise.service.commands.evaluate.options import (
    BASE,
    Arithmetic,
    Base,
    Data,
    JsonLines,
    Limit,
    Models,
    Out,
    Written,
    by_name,
    encoders_and_rerankers,
    read,
    report,
)

if TYPE_CHECKING:
    from turnwise.models.evaluation.ranking import Model


class Negatives(StrEnum):  # typer takes no list of a Literal
    """Sources of wrong candidates."""

    RANDOM = "random"
    BM25 = "bm25"
    SAME_DIALOGUE = "same-dialogue"


_RANDOM = [Negatives.RANDOM]


def ranking(
    *,
    data: JsonLines,
    model: Models = None,
    cross_encoder: Annotated[
        list[str] | None,
        typer.Option(help="Cross-encoders: folders or hub names.", metavar="FOLDER_OR_NAME ..."),
    ] = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = "float32",
    limit: Limit = None,
) -> None:
    """Rank the candidates of R10 files; --model takes re-rankers' folders too."""
    from turnwise.models.evaluation import ranking as task  # noqa: PLC0415 - loads torch
    from turnwise.models.rerankers import CrossEncoder  # noqa: PLC0415
    from turnwise.service.commands.progress import SystemProgress  # noqa: PLC0415

    examples = task.read_ranking(data, limit)
    if examples.dropped:
        count, first = len(examples.dropped), examples.dropped[0]
        what = f"dropped {count} contexts, the first at {first}: all candidates are right, or none"
        typer.echo(what, err=True)
    models: dict[str, Model] = {**encoders_and_rerankers(model, base, precision)}
    models |= by_name(cross_encoder or [], CrossEncoder, models)
    with SystemProgress() as progress:
        rows = list(task.evaluate_ranking(models, examples, progress))
    report("ranking", data, rows, out)


def build_ranking(
    *,
    data: Data,
    out: Written,
    negatives: Annotated[
        list[Negatives], typer.Option(help="Sources of wrong candidates, in equal parts.")
    ] = _RANDOM,
    candidates: Annotated[
        int, typer.Option(min=2, help="Candidates for each context, including the right one.")
    ] = 10,
    replies: Annotated[int, typer.Option(min=1, help="Replies drawn from a dialogue.")] = 1,
    history: Annotated[int, typer.Option(min=1, help="Fewest utterances before a reply.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all draws.")] = 0,
    limit: Limit = None,
) -> None:
    """Make an R10 file from dialogues: the true reply among wrong ones."""
    from turnwise.models.evaluation import ranking as task  # noqa: PLC0415

    how = task.Building(
        sources=tuple(source.value for source in negatives),
        candidates=candidates,
        replies=replies,
        context=history,
        seed=seed,
    )
    dialogues = read(data, limit)
    with naming(data):
        total = len(task.draw_replies(dialogues, how))
        examples = track(task.build_ranking(dialogues, how), "building", total, transient=True)
        count = task.write_ranking(examples, out)
    Console().print(f"{count} contexts written to {out}", markup=False, highlight=False)
