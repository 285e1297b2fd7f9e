"""The learner of the pairwise context-response model (DSE-P)."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.models.encoder.rewriting import Rewriting
from turnwise.models.encoder.torch import (
    UtteranceEncoder,
    dimension_of,
    encode_tokens,
)
from turnwise.models.evaluation.metrics import Metrics
from turnwise.models.evaluation.split import Context
from turnwise.models.files import replace_folder
from turnwise.models.network_folder import save_reranker
from turnwise.models.pairwise import ENCODER, PairwiseModel, Projectors
from turnwise.models.roles import Role, RoleText, candidate_inputs
from turnwise.models.training.base import freeze_all_but, load_learnable
from turnwise.models.training.checkpoint import save_encoder
from turnwise.models.training.config import PairwiseConfig
from turnwise.models.training.corpora import (
    Find,
    draw_batches,
    epoch_generator,
    read_pairs,
    validation_texts,
)
from turnwise.models.training.losses import contrastive_loss
from turnwise.models.training.trainer import warm_up_and_decay
from turnwise.models.training.validation import pairwise_validator


class PairwiseLearner(nn.Module):
    """The encoder, whose last layers learn, and the projectors."""

    clip = 1.0

    def __init__(self, config: PairwiseConfig, find: Find) -> None:
        """Load the base, freeze what does not learn, and read the data.

        Raises:
            DataError: A file of the data is missing or malformed.
            ModelError: The base cannot be loaded.
        """
        super().__init__()
        torch.manual_seed(config.seed)
        self.config = config
        self.encoder = load_learnable(config.base)
        freeze_all_but(self.encoder, config.layers)
        embedding = dimension_of(self.encoder)
        self.projectors = Projectors(embedding, config.projection, config.context_length)
        self._rewriting = Rewriting.of_model(config.base)
        self._reader = self._wrap()
        self.to(self.encoder.device)
        turns = config.context_length
        validating = validation_texts(config.validation, find)
        self.corpora = [
            (read_pairs(corpus, find, turns, self.is_truncated, validating), corpus.pairs)
            for corpus in config.data
        ]
        self.counts = [len(pairs) for pairs, _ in self.corpora]
        self._validate = pairwise_validator(config, find)

    @property
    def weights(self) -> nn.Module:
        """Everything that is learned."""
        return self

    def optimiser(self) -> torch.optim.Optimizer:
        """Return AdamW, the projectors with their own rate; biases and norms do not decay."""
        rates = self.config.optimiser
        groups = []
        for module, rate in (
            (self.encoder, rates.learning_rate),
            (self.projectors, rates.projector_learning_rate),
        ):
            learning = [p for p in module.parameters() if p.requires_grad]
            matrices = [p for p in learning if p.ndim > 1]
            vectors = [p for p in learning if p.ndim <= 1]
            groups += [
                {"params": matrices, "lr": rate, "weight_decay": rates.weight_decay},
                {"params": vectors, "lr": rate, "weight_decay": 0.0},
            ]
        return torch.optim.AdamW(groups, fused=True)

    def rate(self, steps: int) -> Callable[[int], float]:
        """Return a function from a step to the factor on the learning rates."""
        return warm_up_and_decay(steps, self.config.optimiser.warm_up)

    def batches(self, epoch: int) -> list[list[Context]]:
        """Return the batches of an epoch, which mix the corpora."""
        config = self.config
        rng = epoch_generator(config.seed, epoch)
        return draw_batches(self.corpora, config.batch_pairs, config.seed, epoch, rng)

    def loss(self, batch: list[Context], rng: np.random.Generator) -> tuple[dict[str, Tensor], int]:
        """Embed each text of the pairs once; return their contrastive loss.

        The responses of the other pairs are a context's negatives.
        """
        del rng  # nothing is drawn
        k = self.config.context_length
        index_of: dict[str, int] = {}
        contexts = torch.zeros(len(batch), k, dtype=torch.int64)
        missing = torch.ones(len(batch), k, dtype=torch.bool)
        for row, pair in enumerate(batch):
            recent = [
                index_of.setdefault(said.text, len(index_of)) for said in pair.utterances[-k:]
            ]
            contexts[row, k - len(recent) :] = torch.tensor(recent)
            missing[row, k - len(recent) :] = False
        answers = [index_of.setdefault(pair.target.text, len(index_of)) for pair in batch]
        responses = torch.tensor(answers)
        encoded = self.embed(list(index_of))
        projected = self.projectors.project_contexts(encoded[contexts], missing.to(encoded.device))
        logits = projected @ self.projectors.project_responses(encoded[responses]).T
        same_text = responses[:, None] == responses
        loss = contrastive_loss(logits / self.config.temperature, same_text.to(logits.device))
        return {"contrastive": loss}, len(index_of)

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Return (n, h) unit embeddings, as `PairwiseModel.embed` gives them."""
        dtype = getattr(torch, self.config.precision)
        return encode_tokens(self.encoder, self._reader.tokenize(candidate_inputs(texts)), dtype)

    def is_truncated(self, text: str) -> bool:
        """Return whether a text has more word pieces than the encoder reads."""
        return self._reader.is_too_long(RoleText(text, Role.AFTER))

    def validate(self) -> Metrics:
        """Return the average rank of the next utterance, recalls and MRR."""
        return self._validate(self.model())

    def model(self) -> PairwiseModel:
        """Return the current model."""
        return PairwiseModel(self._wrap(), self.projectors)

    def _wrap(self) -> UtteranceEncoder:
        """Return the encoder as a service reads texts with it."""
        return UtteranceEncoder(
            self.encoder, precision=self.config.precision, rewriting=self._rewriting
        )

    def save(self, folder: Path) -> None:
        """Write the current model, the encoder in float16."""
        trained = self.config.model_dump(mode="json")
        with replace_folder(folder) as fresh:
            save_reranker(fresh, "pairwise", self.projectors, self.projectors.sizes, trained)
            save_encoder(self._reader, fresh / ENCODER)
