"""`turnwise evaluate ranking`, `journal` and `build-ranking`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import typer
from rich.progress import track

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.errors import name_files
from turnwise.models.evaluation.journal import as_offered, read_choices
from turnwise.models.evaluation.ranking import (
    Building,
    build_ranking,
    draw_replies,
    evaluate_ranking,
    read_ranking,
)
from turnwise.models.text_files import write_jsonl
from turnwise.models.texts import write_count
from turnwise.service.cli.models.evaluate.loading import (
    load_encoders_and_rerankers,
    load_with_cross_encoders,
)
from turnwise.service.cli.models.evaluate.options import Compared
from turnwise.service.cli.models.evaluate.report import report
from turnwise.service.cli.options import read_files
from turnwise.service.cli.progress import SystemProgress


def measure(
    data: list[Path],
    cross_encoders: list[str],
    compared: Compared,
    *,
    out: Path | None,
    limit: int | None,
) -> None:
    """Rank the candidates of R10 files."""
    examples = read_ranking(data, limit)
    if examples.dropped:
        typer.echo(
            f"dropped {write_count(len(examples.dropped), 'context')}, the first at "
            f"{examples.dropped[0]}: all candidates are right, or none",
            err=True,
        )
    models = load_with_cross_encoders(compared, cross_encoders)
    with SystemProgress() as progress:
        rows = list(evaluate_ranking(models, examples, progress))
    report("ranking", data, rows, out)


def measure_journal(
    data: list[Path], compared: Compared, *, out: Path | None, limit: int | None
) -> None:
    """Rank what people were shown."""
    choices = read_choices(data, limit)
    models = load_encoders_and_rerankers(compared)
    with SystemProgress() as progress:
        rows = list(evaluate_ranking({**models}, choices, progress, [as_offered(choices)]))
    report("journal", data, rows, out)


def build(
    data: list[Path],
    form: DialogueFormat,
    *,
    sources: Sequence[Literal["random", "bm25", "same-dialogue"]],
    candidates: int,
    replies: int,
    context: int,
    seed: int,
    out: Path,
    limit: int | None,
) -> None:
    """Write an R10 file of dialogues."""
    how = Building(tuple(sources), candidates, replies, context, seed)
    dialogues = read_files(data, limit, form)
    with name_files(data):
        total = len(draw_replies(dialogues, how))
        examples = track(build_ranking(dialogues, how), "building", total, transient=True)
        count = write_jsonl(out, map(asdict, examples))
    typer.echo(f"{write_count(count, 'context')} written to {out}")
