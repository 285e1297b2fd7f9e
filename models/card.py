"""A model's name and card: the parts of a model that need neither its weights nor torch.

Training writes the card (`training/run.py`); `turnwise card` writes it for any other model.
"""

import json
import os
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import TypeAdapter

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Calibration
from turnwise.models.errors import ModelError
from turnwise.models.example_confidence import ExampleCalibration
from turnwise.models.extras import not_installed
from turnwise.models.files import replace_file
from turnwise.models.fusion import DEFAULT_FUSION, Fusion
from turnwise.models.model_files import hub_answers
from turnwise.models.roles import EncoderKind
from turnwise.models.scores import Aggregation

CARD = "turnwise.json"
RERANKER_CARD = "reranker.json"
"""The card of a trained pairwise model or IoI network; `network_folder.py` writes it."""
OWN_RERANKER = "reranker"
"""The folder of a model's own re-ranker, inside the model's folder."""
PROBED = 8
"""Numbers of a probe's vector that a card states."""
TOLERANCE = 0.05
"""Greatest difference of a probe's number, in units of 1 / √d. On a CPU the shipped model differs
by 0.0014 in float16 and 0.014 in bfloat16. Another limit of tokens or pooling makes 0.1 or more."""
TOLERANCE_OF_8_BITS = 0.5
"""The tolerance for products of 8 bits. They differ by 0.1, and other weights by 1 or more."""


RerankerKind = Literal["pairwise", "ioi"]
Mixing = Literal["unit", "raw"]


@dataclass(frozen=True, slots=True)
class Probe:
    """A text as the model reads it, and the first numbers of its unit vector."""

    text: str
    vector: list[float]


@dataclass(frozen=True, slots=True)
class EncoderFacts:
    """The facts about an encoder that a service needs while another process runs it."""

    kind: EncoderKind
    dimension: int
    fingerprint: str
    probes: list[Probe]
    max_tokens: int | None = None
    """Word pieces of the longest text; cards of earlier versions do not state them."""

    def __post_init__(self) -> None:
        """Reject probes that cannot be compared (ValueError)."""
        length = min(PROBED, self.dimension)
        if not self.probes or any(len(probe.vector) != length for probe in self.probes):
            raise ValueError(f"expected probes with {length} numbers each")

    def differs(self, vectors: Float32, tolerance: float = TOLERANCE) -> bool:
        """Return whether the vectors (n, d) of the n probes come from another encoder."""
        stated = np.array([probe.vector for probe in self.probes], np.float32)
        difference = np.abs(vectors[:, : stated.shape[1]] - stated)
        return not bool((difference <= tolerance / self.dimension**0.5).all())


@dataclass(frozen=True, slots=True)
class Card:
    """The parts of a model's card (`turnwise.json`) that the service reads.

    Attributes:
        aggregation: The aggregation that the model recommends.
        confidence: The calibration of its confidences.
        fusion: The fusion of reply scores and example scores.
        example_confidence: The correction of the confidence in pools with examples.
        encoder: Facts about the encoder.
        mixing: Whether evaluations mix pairs of unit vectors, as the service does, or of vectors as
            the pooling gives them, as the published evaluation of C3L does. It makes no difference
            for a model whose last module is a Normalize.
    """

    aggregation: Aggregation
    confidence: Calibration | None = None
    fusion: Fusion = DEFAULT_FUSION
    example_confidence: ExampleCalibration | None = None
    encoder: EncoderFacts | None = None
    mixing: Mixing = "unit"


def read_card(name: str | Path) -> Card:
    """Return a model's card; without one, the aggregation `mean` and no calibration.

    Args:
        name: A folder, a folder inside a Python package, or a hub name.

    Raises:
        ModelError: The card cannot be read, names no known aggregation, or its calibration lacks a
            coefficient.
    """
    try:
        file = find_file(name, CARD)
        if file is None:
            return Card(Aggregation())
        return TypeAdapter(Card).validate_json(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"model '{name}': {CARD} is not a model card: {error}") from error


def reranker_kind(folder: str | Path) -> RerankerKind | None:
    """Return the kind of re-ranker in a folder; None if it holds none."""
    try:
        kind = json.loads((Path(folder) / RERANKER_CARD).read_text(encoding="utf-8"))["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kind if kind in ("pairwise", "ioi") else None


def has_own_reranker(model: str | Path) -> bool:
    """Return whether a model is a folder with a re-ranker of its own."""
    return Path(locate_model(model), OWN_RERANKER).is_dir()


CardPart = Calibration | Fusion | ExampleCalibration | EncoderFacts


def update_card(folder: Path, part: str, value: CardPart) -> None:
    """Write a part of a model's card, whole or not at all; the other parts stay."""
    card = folder / CARD
    fields = {"aggregation": asdict(Aggregation())}
    if card.exists():
        fields |= json.loads(card.read_text(encoding="utf-8"))
    fields[part] = asdict(value)
    if "trained" in fields:
        fields["trained"] = fields.pop("trained")  # the recipe is long, so it comes last
    with replace_file(card) as fresh:
        fresh.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def model_name(name: str | Path) -> str:
    """Return a model's name: a folder's own name, RUN for `RUN/model`, a hub name unchanged."""
    folder = Path(name).resolve()
    if not folder.is_dir():
        return str(name)
    return folder.parent.name if folder.name == "model" else folder.name


def find_file(name: str | Path, file: str) -> Path | None:
    """Return a file of a model; None if the model has no such file."""
    where = locate_model(name)
    if Path(where).is_dir():
        found = Path(where, file)
        return found if found.exists() else None
    from sentence_transformers.util import load_file_path  # noqa: PLC0415 - loads torch

    home = os.getenv("SENTENCE_TRANSFORMERS_HOME")  # sentence-transformers' cache of hub models
    downloaded = load_file_path(where, file, cache_folder=home, local_files_only=not hub_answers())
    return Path(downloaded) if downloaded else None


def locate_model(name: str | Path) -> str:
    """Return the folder that `package:` names, or the name itself.

    Raises:
        ModelError: The package is not installed.
    """
    if not str(name).startswith("package:"):
        return str(name)
    package, _, folder = str(name).removeprefix("package:").partition("/")
    try:
        return str(files(package) / folder)
    except ModuleNotFoundError as error:
        raise ModelError(f"model '{name}': {not_installed(package)}") from error
