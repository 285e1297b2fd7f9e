"""The configurations of the re-rankers' training runs; the defaults are the published settings."""

from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from pydantic.types import NonNegativeFloat

from turnwise.models.rerankers.ioi_network import Objective
from turnwise.models.training.config import (
    Section,
    Seed,
    Source,
    TrainingPrecision,
    Validation,
    native_precision,
)


class PairCorpus(Source):
    """A file of dialogues, each utterance of which is the response to those before it."""

    pairs: PositiveInt | None = None
    """Pairs of a context and its response an epoch; all of the corpus if left out."""


class PairwiseOptimiser(Section):
    """AdamW with a linear warm-up and a linear decay to zero."""

    learning_rate: PositiveFloat = 2e-5
    """Learning rate of the transformer."""
    projector_learning_rate: PositiveFloat = 1e-3
    """Learning rate of what starts untrained: projectors and padding."""
    weight_decay: NonNegativeFloat = 0.01
    warm_up: float = Field(default=0.1, ge=0.0, le=1.0)
    """Share of all steps."""


class PairwiseConfig(Section):
    """A run of the pairwise context-response model."""

    kind: Literal["pairwise"]
    base: str
    """A sentence-transformers folder or hub name."""
    data: tuple[PairCorpus, ...] = Field(min_length=1)
    validation: Validation = Validation()
    optimiser: PairwiseOptimiser = PairwiseOptimiser()
    epochs: PositiveInt = 1
    batch_pairs: int = Field(default=128, ge=2)
    """Pairs of a step; the responses of the others are a context's negatives."""
    context_length: PositiveInt = 3
    """Utterances k of a context."""
    projection: PositiveInt = 256
    temperature: PositiveFloat = 0.05
    layers: PositiveInt = 3
    """Last layers of the transformer that are fine-tuned; embeddings and the rest stay."""
    seed: Seed = 0
    precision: TrainingPrecision = Field(default_factory=native_precision)


class Network(Section):
    """The shape of an IoI network."""

    blocks: PositiveInt = 7
    dimension: PositiveInt = 200
    """Length of word vectors and of all that is made from them."""
    words: int = Field(default=50, ge=3)
    """First words of a text that count."""
    turns: PositiveInt = 10
    """Last utterances of a context that count."""
    matrices: tuple[Literal[1, 2, 3], ...] = Field(default=(1, 2, 3), min_length=1)
    """Similarity matrices of a block: of the given, the self-attended, the crossed texts."""
    dropout: float = Field(default=0.2, ge=0.0, lt=1.0)
    objective: Objective = "local"


class WordVectors(Section):
    """word2vec on the training corpora."""

    min_count: PositiveInt = 2
    """Times that a word must occur to be known."""
    epochs: PositiveInt = 5


class IoIOptimiser(Section):
    """Adam, whose learning rate decays step by step."""

    learning_rate: PositiveFloat = 5e-4
    decay: float = Field(default=0.9, gt=0.0, le=1.0)
    """Factor on the learning rate in so many steps:"""
    decay_steps: PositiveInt = 1000
    least_learning_rate: NonNegativeFloat = 5e-5


class Negatives(Section):
    """The one wrong response that each true one is trained beside."""

    hard: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share that the encoder retrieves for the context; the rest is drawn at random."""
    encoder: str | None = None
    """A folder or hub name; the shipped model if left out."""
    among: PositiveInt = 50
    """Best retrieved responses that a hard one is drawn from."""


class IoIConfig(Section):
    """A run of the interaction-over-interaction network."""

    kind: Literal["ioi"]
    data: tuple[PairCorpus, ...] = Field(min_length=1)
    validation: Validation = Validation()
    network: Network = Network()
    word_vectors: WordVectors = WordVectors()
    negatives: Negatives = Negatives()
    optimiser: IoIOptimiser = IoIOptimiser()
    epochs: PositiveInt = 1
    batch: int = Field(default=50, ge=2)
    """Examples of a step, half of them true."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.network.matrices)) < len(self.network.matrices):
            raise ValueError("network.matrices: one of them is named twice")
        if not self.negatives.hard and self.negatives != Negatives():
            raise ValueError("negatives.hard: is 0, without which encoder and among do nothing")
        if self.batch % 2:
            raise ValueError("batch: must be even, a true and a wrong response to each context")
        return self
