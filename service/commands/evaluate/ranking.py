"""`turnwise evaluate ranking`, and `build-ranking`, which makes its files."""

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


class Source(StrEnum):  # no Literal, of which typer takes no list
    """Where wrong candidates come from."""

    RANDOM = "random"
    BM25 = "bm25"
    SAME_DIALOGUE = "same-dialogue"


_RANDOM = [Source.RANDOM]


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
    from turnwise.models.evaluation.cross_encoder import CrossEncoderScorer  # noqa: PLC0415 - loads torch
    from turnwise.models.evaluation.ranking import evaluate_ranking  # noqa: PLC0415
    from turnwise.models.evaluation.ranking_files import read_ranking  # noqa: PLC0415
    from turnwise.service.commands.evaluate.progress import SystemProgress  # noqa: PLC0415

    problems = read_ranking(data, limit)
    if problems.dropped:
        count, first = len(problems.dropped), problems.dropped[0]
        what = f"dropped {count} contexts, first {first}: all candidates right, or none"
        typer.echo(what, err=True)
    models: dict[str, Model] = {**encoders_and_rerankers(model, base, precision)}
    models |= by_name(cross_encoder or [], CrossEncoderScorer, models)
    with SystemProgress() as progress:
        rows = list(evaluate_ranking(models, problems, progress))
    report("ranking", data, rows, out)


def build_ranking(
    *,
    data: Data,
    out: Written,
    negatives: Annotated[
        list[Source], typer.Option(help="Where wrong candidates come from, in equal parts.")
    ] = _RANDOM,
    candidates: Annotated[
        int, typer.Option(min=2, help="Candidates, the right one included.")
    ] = 10,
    replies: Annotated[int, typer.Option(min=1, help="Replies drawn from a dialogue.")] = 1,
    history: Annotated[int, typer.Option(min=1, help="Utterances before a reply, at least.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of all draws.")] = 0,
    limit: Limit = None,
) -> None:
    """Make an R10 file from dialogues: the true reply among wrong ones."""
    from turnwise.models.evaluation import ranking_builder as builder  # noqa: PLC0415
    from turnwise.models.evaluation.ranking_files import write_ranking  # noqa: PLC0415

    how = builder.Building(
        sources=tuple(source.value for source in negatives),
        candidates=candidates,
        replies=replies,
        history=history,
        seed=seed,
    )
    dialogues = read(data, limit)
    with naming(data):
        total = len(builder.places(dialogues, how))
        problems = track(builder.build_ranking(dialogues, how), "building", total, transient=True)
        count = write_ranking(problems, out)
    Console().print(f"{count} contexts written to {out}", markup=False, highlight=False)
