"""Loads the models that a task compares."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

import typer

from turnwise.models import DEFAULT_MODEL
from turnwise.models.card import reranker_kind
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import TurnwiseError
from turnwise.models.evaluation.ranking import Model
from turnwise.models.extras import require
from turnwise.models.pairwise import PairwiseModel
from turnwise.models.rerankers.cross_encoder import CrossEncoder
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.service.cli.models.evaluate.options import BASE, BASE_PACKAGE, Compared

RankingModel = UtteranceEncoder | PairwiseModel | IoI


class Named(Protocol):
    """A model that knows its name."""

    name: str


M = TypeVar("M", bound=Named)


def load_encoders(compared: Compared) -> dict[str, UtteranceEncoder]:
    """Return the base and the models, by their names in the table."""
    if others := [name for name in compared.models or [] if reranker_kind(name)]:
        raise typer.BadParameter(f"not an encoder, which this task needs: {', '.join(others)}")
    return _load_with_base(
        compared, lambda name: UtteranceEncoder(name, precision=compared.precision)
    )


def load_encoders_and_rerankers(compared: Compared) -> dict[str, RankingModel]:
    """Return the base and the models; folders of re-rankers are models as well."""

    def load(name: str) -> RankingModel:
        match reranker_kind(name):
            case "pairwise":
                return PairwiseModel.load(name, precision=compared.precision)
            case "ioi":
                return IoI.load(name)
            case None:
                return UtteranceEncoder(name, precision=compared.precision)

    return _load_with_base(compared, load)


def load_encoders_and_pairwise(compared: Compared) -> dict[str, UtteranceEncoder | PairwiseModel]:
    """Return the base and the models; each must have vectors."""
    loaded = load_encoders_and_rerankers(compared)
    vectors = {name: model for name, model in loaded.items() if not isinstance(model, IoI)}
    if without := loaded.keys() - vectors.keys():
        raise typer.BadParameter(f"an IoI network has no vectors to compare: {', '.join(without)}")
    return vectors


def load_with_cross_encoders(compared: Compared, names: Iterable[str]) -> dict[str, Model]:
    """Return the base, the models, and cross-encoders by their folders or hub names."""
    models: dict[str, Model] = {**load_encoders_and_rerankers(compared)}
    return models | load_by_name(names, CrossEncoder, models)


def load_by_name(
    names: Iterable[str], load: Callable[[str], M], taken: Collection[str]
) -> dict[str, M]:
    """Load each model once. Its key is its name; if that is taken, its argument or its path."""
    loaded: dict[str, M] = {}
    for name in dict.fromkeys(names):
        model = load(name)
        keys = (model.name, name, str(Path(name).resolve()))
        free_key = next(key for key in keys if key not in taken and key not in loaded)
        loaded[free_key] = model
    return loaded


def _load_with_base(compared: Compared, load: Callable[[str], M]) -> dict[str, M]:
    base = compared.base
    if "" in (compared.models or []):
        raise typer.BadParameter("--model: a name is empty")
    loaded: dict[str, M] = {}
    if base and _has_base(base, "compares no base"):
        loaded["base"] = load(base)
    others = (name for name in compared.models or [str(DEFAULT_MODEL)] if name != base)
    return loaded | load_by_name(others, load, {"base"})


def find_retriever() -> str:
    """Return the encoder that retrieves candidates: the default base, else the shipped model."""
    instead = "retrieves candidates by the shipped model"
    return BASE if _has_base(BASE, instead) else str(DEFAULT_MODEL)


def _has_base(base: str, instead: str) -> bool:
    """Return whether the base can be loaded. If not, print what evaluate does instead."""
    try:
        if base == BASE:
            require(BASE_PACKAGE)
    except TurnwiseError as error:
        typer.echo(f"evaluate {instead}: {error}", err=True)
        return False
    return True
