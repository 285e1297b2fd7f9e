"""The configuration of a training run: one TOML file, each value with its why beside it."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic.types import NonNegativeFloat, NonNegativeInt

from turnwise.models.errors import ConfigError
from turnwise.models.roles import EncoderKind
from turnwise.models.scores import Aggregation

Schema = TypeVar("Schema", bound="Section")
TrainingPrecision = Literal["float32", "bfloat16"]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


def native_precision() -> TrainingPrecision:
    """Return bfloat16 where this machine computes in it, else float32.

    Without instructions for it, a processor takes several times as long as in float32.
    """
    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    able = torch.cpu.get_capabilities()
    native = any(able.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))  # the last on ARM
    return "bfloat16" if native else "float32"


class Section(BaseModel):
    """A table of the file; a field that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Source(Section):
    """A file of dialogues."""

    path: str
    leave_out: str | None = None
    """A JSON file of lists of dialogue ids that must not be trained on."""


class Corpus(Source):
    """A file of dialogues, and how much of it an epoch sees."""

    views: PositiveInt | None = None
    """Views (a window from one speaker's side) an epoch; all of the corpus if left out."""


class Objectives(Section):
    """The weights of the objectives, 0 for off. The loss is their weighted sum."""

    ccl: NonNegativeFloat = 0.0
    """CCL, on the single context vectors."""
    c3l: NonNegativeFloat = 0.0
    """C3L, on the mixtures of two."""
    running_query: NonNegativeFloat = 0.0
    """Contrastive, on the running query that is used at inference."""
    reach: NonNegativeFloat = 0.0
    """Contrastive, on single vectors and all targets ahead in the window."""
    order: NonNegativeFloat = 0.0
    """Logistic, on which of two utterances of a speaker comes first."""
    nli: NonNegativeFloat = 0.0
    """Softmax over three classes of premise and hypothesis."""
    window: int = Field(default=5, ge=2)
    """Utterances of a window of the curved objectives, the target included."""
    curved: bool = True
    """Off: every true pair or triple scores 1 (the papers' hard positives)."""
    directional: bool = True
    """Whether pairs in the wrong order are negatives of CCL."""
    directional_triples: bool = False
    """The same for C3L (an ablation of the paper)."""
    same_dialogue: bool = True
    """Whether other turns of the same dialogue are negatives of the running query."""
    query_rows: tuple[NonNegativeInt, ...] = Field(default=(2, 0), min_length=1)
    """Aggregations that the running-query objective trains: last l rows; 0 is all of them."""


class Optimiser(Section):
    """AdamW with a linear warm-up and a linear decay to zero."""

    learning_rate: PositiveFloat = 2e-5
    scale_learning_rate: NonNegativeFloat = 1e-3
    """Learning rate of the inverse temperatures' logarithms, which live on another scale."""
    weight_decay: NonNegativeFloat = 0.01
    warm_up: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of all steps."""
    clip: PositiveFloat = 1.0
    """Largest norm of the gradient."""


class Nli(Section):
    """Natural-language inference as a second objective."""

    paths: tuple[str, ...] = Field(min_length=1)
    pairs: PositiveInt = 64
    """Premise-hypothesis pairs a step."""


class Validation(Section):
    """What chooses the best checkpoint: the average rank over these corpora."""

    paths: tuple[str, ...] = ()
    dialogues: PositiveInt = 300
    """From the head of each file."""
    every: PositiveInt = 200
    """Steps between validations; a checkpoint is written with each."""


class TrainConfig(Section):
    """A training run."""

    kind: EncoderKind
    base: str
    """A folder or hub name; or another configuration beside this one, which is trained first."""
    data: tuple[Corpus, ...] = Field(min_length=1)
    validation: Validation = Validation()
    nli: Nli | None = None
    objectives: Objectives
    optimiser: Optimiser = Optimiser()
    epochs: PositiveInt = 1
    batch_views: int = Field(default=64, ge=2)
    """Views of a step."""
    spaced: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of batches that are rewritten in the spaced style of tokenised corpora."""
    turns: int = Field(default=11, ge=2)
    """Longest window that is encoded at once: a history of 10 and its answer."""
    seed: Seed = 0
    precision: TrainingPrecision = Field(default_factory=native_precision)
    """Precision of the transformer's arithmetic; float16 would need its losses scaled."""
    keep_base: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the base in the weights that are validated and kept (WiSE-FT): what it knows
    outside the training domains survives."""
    gradient_cache: bool = False
    """Encode twice, so that memory holds the graph of one small batch only."""
    aggregation: Aggregation = Aggregation()
    """What the model's card will recommend."""

    def files(self) -> Iterator[str]:
        """Yield every file that the run reads, as it is named."""
        for corpus in self.data:
            yield corpus.path
            if corpus.leave_out:
                yield corpus.leave_out
        yield from self.validation.paths
        yield from self.nli.paths if self.nli else ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        weigh = self.objectives
        weights = (weigh.ccl, weigh.c3l, weigh.running_query, weigh.reach, weigh.order, weigh.nli)
        if not any(weights):
            raise ValueError("objectives: none of them has a weight")
        if self.kind is EncoderKind.SINGLE and (
            weigh.order or weigh.reach or (weigh.ccl and weigh.directional)
        ):
            what = "tells no order, which order, reach and the directional negatives of ccl teach"
            raise ValueError(f"kind: a single encoder {what}")
        if weigh.c3l and weigh.directional_triples and not self.kind.paired:
            raise ValueError("objectives.directional_triples: only a triple encoder tells an order")
        if weigh.c3l and weigh.window < 3:
            raise ValueError("objectives.window: a triple needs a window of at least 3")
        if any((weigh.ccl, weigh.c3l, weigh.reach, weigh.order)) and self.turns < weigh.window:
            raise ValueError(f"turns: shorter than objectives.window, which is {weigh.window}")
        if len(set(weigh.query_rows)) < len(weigh.query_rows):
            raise ValueError("objectives.query_rows: one of them is named twice")
        if weigh.nli and self.nli is None:
            raise ValueError("nli: the objective has a weight, but there is no such table")
        if self.nli and not weigh.nli:
            raise ValueError("objectives.nli: has no weight, without which nli does nothing")
        return self


def read_config(path: str | Path, schema: type[Schema]) -> Schema:
    """Read a training configuration.

    Args:
        path: The file.
        schema: What it should hold, such as `TrainConfig`.

    Raises:
        ConfigError: The file is missing, no TOML, or holds a field that is unknown, missing
            or of the wrong type.
    """
    try:
        return schema.model_validate(read_toml(path))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        what = first["msg"].removeprefix("Value error, ")  # of a validator above
        raise ConfigError(what, str(path), field) from error


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a file of TOML.

    Raises:
        ConfigError: The file is missing or no TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(error.strerror or "cannot be read", str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(error), str(path)) from error
