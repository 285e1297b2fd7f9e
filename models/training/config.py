"""The configuration of a training run: one TOML file, in which comments give the reasons.

`read_stages` reads the file of any kind of model. For the models of the papers most defaults are
the published settings. The exceptions are `batch_windows` (the papers count pairs and triples, not
windows) and the `decay` of IoI.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)
from pydantic.types import NonNegativeFloat, NonNegativeInt

from turnwise.models.dialogue_files import DialogueFormat
from turnwise.models.errors import ConfigError, message_of
from turnwise.models.rerankers.ioi.network import Shape
from turnwise.models.roles import EncoderKind, can_become
from turnwise.models.scores import Aggregation
from turnwise.models.training.windows import Positives, TripleTargets

TrainingPrecision = Literal["float32", "bfloat16"]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
NonEmpty = Annotated[str, Field(min_length=1)]

REMOVED = {
    "gradient_cache": "was removed; delete this line, the result is the same",
    "negatives": "was removed; delete this table, wrong responses are drawn at random",
}
"""Fields of earlier versions, each with what to do."""
_IN_TOML = {
    "extra_forbidden": "is not a field of this table",
    "unexpected_keyword_argument": "is not a field of this table",
    "tuple_type": "must be a list: [...], or [[...]] for tables",
    "model_type": "must be a table: {...}",
    "dataclass_type": "must be a table: {...}",
}
"""The meaning of pydantic's errors in a TOML file."""
RENAMED = {"views": "windows", "batch_views": "batch_windows"}
"""Fields of earlier versions that have another name now; the old names still work."""


def native_precision() -> TrainingPrecision:
    """Return bfloat16 where this machine computes in it, else float32.

    A processor without instructions for bfloat16 takes several times as long as in float32.
    """
    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    able = torch.cpu.get_capabilities()
    native = any(able.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))  # the last on ARM
    return "bfloat16" if native else "float32"


def _is_not_one(value: int) -> int:
    if value == 1:
        raise ValueError("must be 0, or 2 or more")
    return value


def _is_not_single(paths: tuple[str, ...]) -> tuple[str, ...]:
    if len(paths) == 1:
        raise ValueError("must name no file, or 2 or more")
    return paths


class Section(BaseModel):
    """A table of the file; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def is_usual(format_of_file: DialogueFormat) -> bool:
    """Return whether a file is found by the usual names, so that no recipe has to state it."""
    return format_of_file == DialogueFormat()


class CorpusSource(Section):
    """A file of dialogues."""

    path: NonEmpty
    leave_out: NonEmpty | None = None
    """A JSON file of lists of dialogue ids that must not be trained on."""
    skip: NonNegativeInt = 0
    """Dialogues at the start of the others that are not trained on, since they measure the model:
    `turnwise evaluate --limit` reads the start of a file."""
    format: DialogueFormat = Field(default=DialogueFormat(), exclude_if=is_usual)
    """The columns of a table, and the encoding: `{speaker = "Who", encoding = "cp1252"}`."""


class WindowCorpus(CorpusSource):
    """A corpus for an encoder, and how much of it an epoch sees."""

    windows: PositiveInt | None = None
    """Windows (a dialogue from one speaker's side) in an epoch; all of them if left out."""


class PairCorpus(CorpusSource):
    """A corpus for a re-ranker: each utterance is the response to those before it."""

    pairs: PositiveInt | None = None
    """Pairs of a context and its response in an epoch; all of them if left out."""


class Validation(Section):
    """The data that chooses the best checkpoint."""

    paths: tuple[NonEmpty, ...] = ()
    format: DialogueFormat = Field(default=DialogueFormat(), exclude_if=is_usual)
    """The columns and the encoding of all of the files, as for a corpus."""
    dialogues: PositiveInt = 300
    """Dialogues drawn from each file. They are not trained on, whatever file they are in."""
    every: PositiveInt | None = None
    """Steps between validations; a checkpoint is written with each. If left out, there are ten
    validations, or one every 200 steps."""

    def choose_interval(self, steps: int) -> int:
        """Return the steps between the validations of a run of so many steps."""
        return self.every or min(200, math.ceil(steps / 10))


class Answers(Section):
    """Answers on which the fusion and the confidence with examples are fitted.

    The space of examples is then fitted on the corpora. Without pools a model keeps all three from
    its base.
    """

    pools: Annotated[tuple[NonEmpty, ...], AfterValidator(_is_not_single)] = ()
    """Files, one for each pool: none, or at least two. The first holds small talk."""
    outside: tuple[NonEmpty, ...] = ()
    """Files of questions that no answer fits."""
    dialogues: tuple[NonEmpty, ...] = ()
    """Files of dialogues in which some replies recur, a pool each. Only they show how much less an
    example counts later in a conversation."""
    others: tuple[NonEmpty, ...] = ()
    """Files of dialogues whose texts fill larger pools, for the confidence."""


class RunConfig(Section):
    """The values that every kind of run has."""

    validation: Validation = Validation()
    epochs: PositiveInt = 1
    seed: Seed = 0


class Objectives(Section):
    """The weights of the objectives, 0 for off. The loss is their weighted sum.

    Heads also learn `supposed_loss`, always.
    """

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
    distil: NonNegativeFloat = 0.0
    """Distance to the vectors and the scores of a teacher, in the roles of the step's texts."""
    similarity: NonNegativeFloat = 0.0
    """Divergence from another encoder's similarities of utterances, for examples."""
    minimal_pairs: NonNegativeFloat = 0.0
    """Logistic, on which of two replies fits a context, such as one that ends with "no"."""
    window: int = Field(default=5, ge=2)
    """Utterances that a curved objective looks at together, the target included (w of C3L)."""
    curved: bool = True
    """Off: every true pair or triple scores 1 (the papers' hard positives)."""
    triple_targets: TripleTargets = "released"
    """Curved targets of C3L, as the released trainer or as the printed equation scales them."""
    directional: bool = True
    """Whether pairs in the wrong order are negatives of CCL."""
    random: bool = True
    """Whether pairs with a random utterance are negatives of CCL (without them an ablation)."""
    c3l_positives: Positives = "triples"
    """The true examples of C3L. With `pairs` they are CCL's pairs (an ablation of the paper)."""
    directional_triples: bool = False
    """Whether triples in the wrong order are negatives of C3L (an ablation of the paper)."""
    same_dialogue: bool = True
    """Whether other turns of the same dialogue are negatives of the running query."""
    query_rows: tuple[NonNegativeInt, ...] = Field(default=(2, 0), min_length=1)
    """Aggregations that the running-query objective trains: last l rows; 0 is all of them."""


class Optimiser(Section):
    """AdamW with a linear warm-up and a linear decay to zero."""

    learning_rate: PositiveFloat = 2e-5
    scale_learning_rate: NonNegativeFloat = 1e-3
    """Learning rate of the logarithms of the inverse temperatures, which have another scale."""
    weight_decay: NonNegativeFloat = 0.01
    warm_up: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of all steps."""
    clip: PositiveFloat = 1.0
    """Largest norm of the gradient."""


class Nli(Section):
    """Natural-language inference as a second objective."""

    paths: tuple[NonEmpty, ...] = Field(min_length=1)
    pairs: PositiveInt = 64
    """Premise-hypothesis pairs in a step."""


class UtteranceCorpus(CorpusSource):
    """A corpus that is read as single utterances."""

    utterances: PositiveInt = 1000
    """Utterances that are drawn."""
    speaker: NonEmpty | None = None
    """The speaker who says them; anybody if left out."""


class Similar(Section):
    """Utterances whose similarities another encoder teaches, for the objective `similarity`."""

    teacher: NonEmpty
    """The other encoder: a folder or a hub name. It may have other dimensions."""
    data: tuple[UtteranceCorpus, ...] = Field(min_length=1)
    utterances: int = Field(default=48, ge=3)
    """Utterances in a step."""


class PairsInStep(Section):
    """Minimal pairs, such as of yes and no, for the objective `minimal_pairs`."""

    paths: tuple[NonEmpty, ...] = Field(min_length=1)
    pairs: PositiveInt = 8
    """Pairs in a step."""


class EncoderConfig(RunConfig):
    """A run, or one stage of a run, of an encoder."""

    kind: EncoderKind
    base: NonEmpty
    """A folder or a hub name. A later stage starts from the model of the stage before it."""
    depth: PositiveInt | None = None
    """How many of the base's layers to keep, evenly spread; all if left out."""
    layers: NonNegativeInt | None = None
    """Last layers of the transformer that learn; embeddings and the rest stay. All learn if left
    out; with 0 only the heads."""
    data: tuple[WindowCorpus, ...] = Field(min_length=1)
    nli: Nli | None = None
    teacher: NonEmpty | None = None
    """The encoder whose vectors `distil` teaches: a folder, a hub name, or `base`, the model that
    this stage starts from."""
    similar: Similar | None = None
    minimal_pairs: PairsInStep | None = None
    objectives: Objectives
    optimiser: Optimiser = Optimiser()
    batch_windows: int = Field(default=64, ge=2)
    """Windows in a step."""
    spaced: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of batches that are rewritten in the spaced style of tokenised corpora."""
    noise: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the utterances that are read as speech recognition or fast typists write them.
    Candidates and what a teacher reads stay as they are."""
    turns: int = Field(default=11, ge=2)
    """Longest window that is encoded at once: a context of 10 and its answer."""
    precision: TrainingPrecision = Field(default_factory=native_precision)
    """Precision of the transformer's arithmetic; float16 would need its losses scaled."""
    eight_bits: bool = False
    """Simulates products of 8 bits (`eight_bits.py`), so that the model withstands them."""
    keep_base: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the base in the weights that are validated and kept (WiSE-FT), so that the model
    keeps what the base knows outside the training domains."""
    aggregation: Aggregation = Aggregation()
    """The aggregation that the model's card will recommend."""
    calibration_pool: Annotated[NonNegativeInt, AfterValidator(_is_not_one)] = 20_000
    """Candidates of the largest pool on which the confidence is fitted after the last step, on the
    validation dialogues; 0 fits none."""
    answers: Answers = Answers()

    @property
    def keeps_encoder(self) -> bool:
        """Whether the encoder stays that of the base, and only heads learn."""
        return self.layers == 0 and self.depth is None

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        if problem := next(self._find_contradictions(), None):
            raise ValueError(problem)
        return self

    def _find_contradictions(self) -> Iterator[str]:
        weigh = self.objectives
        window = weigh.window
        curved = any((weigh.ccl, weigh.c3l, weigh.reach, weigh.order))
        ordered = weigh.order or weigh.reach or (weigh.ccl and weigh.directional)
        if self.base.endswith(".toml"):
            yield "base: cannot be a configuration; make both of them a [[stage]] of one file"
        others = (
            weigh.running_query,
            weigh.nli,
            weigh.distil,
            weigh.similarity,
            weigh.minimal_pairs,
        )
        if not (curved or any(others)):
            yield "objectives: none of them has a weight"
        if self.kind is EncoderKind.SINGLE and ordered:
            yield "kind: these objectives teach an order, which a single encoder cannot learn"
        if weigh.c3l and weigh.directional_triples and not self.kind.paired:
            what = "only a triple encoder, or one with heads, knows the order of a pair"
            yield f"objectives.directional_triples: {what}"
        if weigh.c3l and window < 3:
            yield "objectives.window: a triple needs a window of at least 3"
        if curved and self.turns < window:
            yield f"turns: shorter than objectives.window, which is {window}"
        if len(set(weigh.query_rows)) < len(weigh.query_rows):
            yield "objectives.query_rows: has the same number twice"
        if self.layers == 0 and self.kind is not EncoderKind.HEADS:
            yield f"layers: with 0 only heads learn, and a {self.kind} encoder has none"
        if weigh.distil and self.teacher is None:
            yield "teacher: is missing, but objectives.distil has a weight"
        if self.teacher and not weigh.distil:
            yield "teacher: only objectives.distil uses it, which has no weight"
        yield from self._find_lonely_tables()
        if self.noise and self.kind is EncoderKind.SINGLE:
            yield "noise: a single encoder reads candidates as it reads utterances"

    def _find_lonely_tables(self) -> Iterator[str]:
        """Yield objectives without their table, and tables without their objective."""
        weigh = self.objectives
        for table, given, objective, weight in (
            ("nli", self.nli, "nli", weigh.nli),
            ("similar", self.similar, "similarity", weigh.similarity),
            ("minimal_pairs", self.minimal_pairs, "minimal_pairs", weigh.minimal_pairs),
        ):
            if weight and not given:
                yield f"{table}: the objective has a weight, but the table [{table}] is missing"
            if given and not weight:
                what = f"has no weight, so that the table [{table}] has no effect"
                yield f"objectives.{objective}: {what}"


class PairwiseOptimiser(Section):
    """AdamW with a linear warm-up and a linear decay to zero."""

    learning_rate: PositiveFloat = 2e-5
    """Learning rate of the transformer."""
    projector_learning_rate: PositiveFloat = 1e-3
    """Learning rate of the untrained parts: projectors and padding."""
    weight_decay: NonNegativeFloat = 0.01
    warm_up: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of all steps."""


class PairwiseConfig(RunConfig):
    """A run of the pairwise context-response model (DSE-P)."""

    kind: Literal["pairwise"]
    base: NonEmpty
    """A sentence-transformers folder or hub name."""
    data: tuple[PairCorpus, ...] = Field(min_length=1)
    optimiser: PairwiseOptimiser = PairwiseOptimiser()
    batch_pairs: int = Field(default=128, ge=2)
    """Pairs in a step; the responses of the others are a context's negatives."""
    context_length: PositiveInt = 3
    """Utterances k of a context."""
    projection: PositiveInt = 256
    temperature: PositiveFloat = 0.05
    layers: PositiveInt = 3
    """Last layers of the transformer that are fine-tuned; embeddings and the rest stay."""
    precision: TrainingPrecision = Field(default_factory=native_precision)


class WordVectors(Section):
    """word2vec on the training corpora."""

    min_count: PositiveInt = 2
    """Times that a word must occur to be known."""
    epochs: PositiveInt = 5


class IoIOptimiser(Section):
    """Adam, whose learning rate decays step by step."""

    learning_rate: PositiveFloat = 5e-4
    decay: float = Field(default=0.9, gt=0.0, le=1.0)
    """Factor on the learning rate after `decay_steps` steps."""
    decay_steps: PositiveInt = 1000
    least_learning_rate: NonNegativeFloat = 5e-5


class IoIConfig(RunConfig):
    """A run of the interaction-over-interaction network."""

    kind: Literal["ioi"]
    data: tuple[PairCorpus, ...] = Field(min_length=1)
    network: Shape = Shape()
    word_vectors: WordVectors = WordVectors()
    optimiser: IoIOptimiser = IoIOptimiser()
    batch: int = Field(default=50, ge=2)
    """Examples in a step, half of them true."""

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        if len(set(self.network.matrices)) < len(self.network.matrices):
            raise ValueError("network.matrices: has the same number twice")
        if len(set(self.network.compressed)) < len(self.network.compressed):
            raise ValueError("network.compressed: has the same representation twice")
        if self.batch % 2:
            raise ValueError("batch: must be even, a true and a wrong response to each context")
        return self


class MinimalPairs(Section):
    """Minimal pairs, such as of yes and no."""

    paths: tuple[NonEmpty, ...] = Field(min_length=1)
    pairs: PositiveInt | None = None
    """Pairs in an epoch; all of them if left out."""


class CrossEncoderOptimiser(Section):
    """AdamW with a linear warm-up and a linear decay to zero."""

    learning_rate: PositiveFloat = 2.5e-4
    weight_decay: NonNegativeFloat = 0.01
    warm_up: float = Field(default=0.05, ge=0.0, le=1.0)
    """Share of all steps."""
    pair_weight: NonNegativeFloat = 0.3
    """Weight of the loss of single candidates next to that of lists."""


class CrossEncoderConfig(RunConfig):
    """A run of a small cross-encoder that re-ranks the short list of an encoder."""

    kind: Literal["cross_encoder"]
    base: NonEmpty
    """The encoder whose short list it re-ranks: a folder or a hub name. The re-ranker has the
    tokenizer of the base, and its word vectors, which do not learn."""
    start: NonEmpty | None = None
    """A cross-encoder with the same word vectors that is trained further; by default a new one."""
    layers: tuple[NonNegativeInt, ...] = Field(default=(0, 1, 2), min_length=1)
    """Layers of the base that a new re-ranker starts with, the first one being 0."""
    pieces: int = Field(default=64, ge=8)
    """Word pieces of a context and a candidate that it reads."""
    data: tuple[PairCorpus, ...] = Field(min_length=1)
    """Corpora; a pair is a list of the true response and wrong ones."""
    minimal_pairs: MinimalPairs | None = None
    sources: tuple[Literal["random", "bm25", "same-dialogue", "short-list"], ...] = Field(
        default=("short-list", "bm25", "same-dialogue", "random"), min_length=1
    )
    """Sources of the wrong responses of a list, in equal parts."""
    candidates: int = Field(default=6, ge=2)
    """Candidates of a list, the true response included."""
    batch_lists: PositiveInt = 20
    """Lists in a step."""
    speech: float = Field(default=0.15, ge=0.0, le=1.0)
    """Share of contexts in which the other speaker's utterances lose capitals and marks, as speech
    recognition writes them."""
    optimiser: CrossEncoderOptimiser = CrossEncoderOptimiser()


class ParallelCorpus(Section):
    """A file of texts in the teacher's language with their translations."""

    path: NonEmpty
    pairs: PositiveInt | None = None
    """Pairs in an epoch; all of them if left out."""


class MultilingualConfig(RunConfig):
    """A run that teaches an encoder of one language to read other languages."""

    kind: Literal["multilingual"]
    base: NonEmpty
    """An encoder with a vocabulary of word pieces: a folder or a hub name."""
    teacher: NonEmpty | None = None
    """The encoder whose vectors are taught; the base if left out. A base that was taught other
    languages before needs the teacher that it had then."""
    parallel: tuple[ParallelCorpus, ...] = Field(min_length=1)
    """Translations: the model learns the vectors that the teacher has for their sources."""
    data: tuple[UtteranceCorpus, ...] = Field(min_length=1)
    """Dialogues in the teacher's language, which the model must not forget."""
    pieces: NonNegativeInt = 40_000
    """Word pieces that are learned from the translations; 0 if the base has them already."""
    optimiser: Optimiser = Optimiser()
    batch_texts: int = Field(default=64, ge=2)
    """Texts in a step."""
    precision: TrainingPrecision = Field(default_factory=native_precision)


Config = EncoderConfig | PairwiseConfig | IoIConfig | CrossEncoderConfig | MultilingualConfig
_KINDS_OF_OTHERS: dict[str, type[Config]] = {
    "multilingual": MultilingualConfig,
    "pairwise": PairwiseConfig,
    "ioi": IoIConfig,
    "cross_encoder": CrossEncoderConfig,
}


def read_stages(path: str | Path, *, small: bool = False) -> list[Config]:
    """Read the configuration of each stage of a run, in the order of training.

    A file without a table `[[stage]]` is a run of one stage. In a file with stages, the values
    outside of them hold for every stage that does not set its own. `[small]` holds the values of
    a short run.

    Args:
        path: The file.
        small: Whether the values of `[small]` replace those of the file, also those of its stages.

    Raises:
        ConfigError: The file is missing, is not TOML, or holds a field that is unknown, missing,
            of the wrong type, or in contradiction to another.
    """
    shared = rename_fields(read_toml(path))
    stages = shared.pop("stage", [{}])
    short = shared.pop("small", None)
    if small and not isinstance(short, dict):
        raise ConfigError("is missing, so that there is no small run", str(path), "small")
    if not (isinstance(stages, list) and stages and all(isinstance(s, dict) for s in stages)):
        raise ConfigError("must be tables, [[stage]]", str(path), "stage")
    configs: list[Config] = []
    for number, stage in enumerate(stages):
        where = f"stage.{number}." if len(stages) > 1 else ""
        table = overlay(shared, stage)
        if small:
            table = overlay(table, short)
        if where and str(table.get("kind")) in _KINDS_OF_OTHERS:
            raise ConfigError("only an encoder is trained in stages", str(path), f"{where}kind")
        configs.append(validate_table(table, str(path), where))
    _check_stages(stages, configs, str(path))
    return configs


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: The file is missing or is not TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(error.strerror or "cannot be read", str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(error), str(path)) from error


def rename_fields(value: Any) -> Any:  # noqa: ANN401 - what TOML and JSON hold
    """Return a configuration or a recipe with the current names of its fields."""
    if isinstance(value, list):
        return [rename_fields(item) for item in value]
    if isinstance(value, dict):
        return {RENAMED.get(name, name): rename_fields(item) for name, item in value.items()}
    return value


def overlay(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the values of another put over its own, tables inside it likewise."""
    merged = {**under, **over}
    for name in under.keys() & over.keys():
        if isinstance(under[name], dict) and isinstance(over[name], dict):
            merged[name] = overlay(under[name], over[name])
    return merged


def validate_table(values: dict[str, Any], file: str, where: str) -> Config:
    """Return the configuration of a run, or of one stage of it.

    Args:
        values: As TOML holds them.
        file: The file that an error names.
        where: The prefix of a field's name in an error, such as `stage.1.`.

    Raises:
        ConfigError: A field is unknown, missing, of the wrong type, or in contradiction to another.
    """
    for name in REMOVED.keys() & values.keys():
        raise ConfigError(REMOVED[name], file, where + name)
    kind = values.get("kind")
    if isinstance(kind, str) and kind not in {*EncoderKind, *_KINDS_OF_OTHERS}:
        known = ", ".join([*EncoderKind, *_KINDS_OF_OTHERS])
        raise ConfigError(f"must be one of {known}", file, where + "kind")
    schema = _KINDS_OF_OTHERS.get(str(kind), EncoderConfig)
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        field = where + ".".join(str(part) for part in first["loc"])
        what = _IN_TOML.get(first["type"]) or message_of(first)
        raise ConfigError(what, file, field.rstrip(".") or None) from error


def _check_stages(stages: list[dict[str, Any]], configs: list[Config], file: str) -> None:
    """Check that each stage, of an encoder, can start from the model of the stage before it."""
    for number in range(1, len(stages)):
        where = f"stage.{number}"
        before = EncoderKind(configs[number - 1].kind)
        after = EncoderKind(configs[number].kind)
        if "base" in stages[number]:
            what = "must be left out: this stage starts from the one before it"
            raise ConfigError(what, file, f"{where}.base")
        if not can_become(before, after):
            what = f"is {after}, which a {before} encoder cannot become"
            raise ConfigError(what, file, f"{where}.kind")
