"""The training of the pairwise context-response model (DSE-P), from top to bottom."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.models.encoder import (
    UtteranceEncoder,
    dimension_of,
    encode_texts,
    is_truncated,
    transformer_of,
)
from turnwise.models.evaluation.next_utterance import ranks_by_length
from turnwise.models.evaluation.split import LENGTHS, Context, make_split
from turnwise.models.evaluation.systems import pairwise_system
from turnwise.models.rerankers.folder import save_reranker
from turnwise.models.rerankers.pairwise import ENCODER, PairwiseModel, Projectors
from turnwise.models.roles import Role, RoleText, encoder_kind, prefixed
from turnwise.models.training.checkpoint import load_learnable, replacing, save_encoder
from turnwise.models.training.corpora import (
    Find,
    count_steps,
    draw_batches,
    recipe_of,
    validation_dialogues,
)
from turnwise.models.training.loop import Report, Run, fit, silent, warm_up_and_decay
from turnwise.models.training.losses import contrastive_loss
from turnwise.models.training.pairs import read_pairs
from turnwise.models.training.reranker_config import PairwiseConfig


def train_pairwise(
    config: PairwiseConfig,
    out: Path,
    *,
    find: Find = Path,
    report: Report = silent,
    device: str | None = None,
    resume: bool = False,
) -> Path:
    """Train a pairwise model and leave the best one in a folder.

    Args:
        config: The run.
        out: Folder for `model/` (the best by the average rank of the next utterance; without
            validation the last), `checkpoint/`, `curves.csv` and `curves.png`.
        find: From a path as the configuration names it to where the file is.
        report: Called after every step.
        device: A torch device; without one a GPU where there is one, else the CPU.
        resume: Whether to go on from `out/checkpoint`, where there is one.

    Returns:
        The folder of the best model.

    Raises:
        DataError: A file of the data does not hold what it should.
        ModelError: The base cannot be loaded.
        TrainingError: The loss is no longer finite, or the checkpoint is not one of this run.
    """
    torch.manual_seed(config.seed)
    learner = PairwiseLearner(config, device)
    k = config.context_length
    corpora = [(read_pairs(c, find, k, learner.is_truncated), c.pairs) for c in config.data]
    validate = validator(config, find)

    def gradients(done: int) -> Iterator[tuple[dict[str, float], int]]:
        for pairs in islice(all_batches(corpora, config), done, None):
            texts, loss = learner(pairs)
            loss.backward()
            yield {"contrastive": loss.item()}, texts

    steps = count_steps(corpora, config.batch_pairs, config.epochs)
    run = Run(
        learner=learner,
        recipe=recipe_of(config, corpora),
        optimiser=make_optimiser(learner),
        rate=warm_up_and_decay(steps, config.optimiser.warm_up),
        steps=steps,
        every=config.validation.every,
        gradients=gradients,
        validate=lambda: validate(learner.model()),
        save=lambda: save(learner, out / "model"),
    )
    fit(run, out, resume=resume, report=report)
    return out / "model"


def all_batches(
    corpora: Sequence[tuple[Sequence[Context], int | None]], config: PairwiseConfig
) -> Iterator[list[Context]]:
    """Yield the batches of all epochs; pairs are drawn over all the corpora."""
    for epoch in range(config.epochs):
        rng = np.random.default_rng([config.seed, 2**32 - 1, epoch])
        yield from draw_batches(corpora, config.batch_pairs, config.seed, epoch, rng)


class PairwiseLearner(nn.Module):
    """The encoder, whose last layers learn, and the projectors."""

    def __init__(self, config: PairwiseConfig, device: str | None = None) -> None:
        """Load the base and freeze what does not learn."""
        super().__init__()
        self.config = config
        self.encoder = load_learnable(config.base, device)
        freeze_all_but(transformer_of(self.encoder), config.layers)
        embedding = dimension_of(self.encoder)
        self.projectors = Projectors(embedding, config.projection, config.context_length)
        self._kind = encoder_kind(self.encoder.tokenizer.get_vocab())
        self.to(self.encoder.device)

    def forward(self, pairs: Sequence[Context]) -> tuple[int, Tensor]:
        """Return how many distinct texts pairs have, and their loss."""
        k = self.config.context_length
        places: dict[str, int] = {}
        contexts = torch.zeros(len(pairs), k, dtype=torch.int64)
        missing = torch.ones(len(pairs), k, dtype=torch.bool)
        for row, pair in enumerate(pairs):
            recent = [places.setdefault(said.text, len(places)) for said in pair.utterances[-k:]]
            contexts[row, k - len(recent) :] = torch.tensor(recent)
            missing[row, k - len(recent) :] = False
        answers = [places.setdefault(pair.target.text, len(places)) for pair in pairs]
        responses = torch.tensor(answers)
        encoded = self.embed(list(places))
        projected = self.projectors.contexts(encoded[contexts], missing.to(encoded.device))
        logits = projected @ self.projectors.responses(encoded[responses]).T
        same_text = responses[:, None] == responses
        loss = contrastive_loss(logits / self.config.temperature, same_text.to(logits.device))
        return len(places), loss

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Return (n, h) unit embeddings, as `PairwiseModel.embed` gives them."""
        dtype = getattr(torch, self.config.precision)
        return encode_texts(self.encoder, [self._prefixed(text) for text in texts], dtype)

    def is_truncated(self, text: str) -> bool:
        """Return whether a text has more word pieces than the encoder reads."""
        return is_truncated(self.encoder, self._prefixed(text))

    def _prefixed(self, text: str) -> str:
        return prefixed(self._kind, RoleText(text, Role.AFTER))

    def model(self) -> PairwiseModel:
        """Return the model as it stands."""
        encoder = UtteranceEncoder(self.encoder, precision=self.config.precision)
        return PairwiseModel(encoder, self.projectors)


def freeze_all_but(transformer: nn.Module, layers: int) -> None:
    """Let only the last layers of a transformer learn."""
    transformer.requires_grad_(requires_grad=False)
    stacks = [module for module in transformer.modules() if isinstance(module, nn.ModuleList)]
    for layer in max(stacks, key=len)[-layers:]:
        layer.requires_grad_(requires_grad=True)


def make_optimiser(learner: PairwiseLearner) -> torch.optim.Optimizer:
    """Return AdamW, with a rate of their own for the projectors; biases and norms do not decay."""
    rates = learner.config.optimiser
    groups = []
    for module, rate in (
        (learner.encoder, rates.learning_rate),
        (learner.projectors, rates.projector_learning_rate),
    ):
        learning = [p for p in module.parameters() if p.requires_grad]
        matrices, vectors = ([p for p in learning if (p.ndim > 1) is big] for big in (True, False))
        groups += [
            {"params": matrices, "lr": rate, "weight_decay": rates.weight_decay},
            {"params": vectors, "lr": rate, "weight_decay": 0.0},
        ]
    return torch.optim.AdamW(groups, fused=True)


def save(learner: PairwiseLearner, folder: Path) -> None:
    """Write the model as it stands in a folder's place, the encoder in float16."""
    trained = learner.config.model_dump(mode="json")
    with replacing(folder) as fresh:
        save_reranker(fresh, "pairwise", learner.projectors, learner.projectors.sizes, trained)
        save_encoder(learner.encoder, fresh / ENCODER)


def validator(config: PairwiseConfig, find: Find) -> Callable[[PairwiseModel], dict[str, float]]:
    """Return what measures a model while it learns: mean metrics over the validation files."""
    files = validation_dialogues(config.validation, find, min(LENGTHS))
    splits = [make_split(dialogues, full_pool=False) for dialogues in files.values()]

    def validate(model: PairwiseModel) -> dict[str, float]:
        measured = [ranks_by_length(pairwise_system(model, split), split) for split in splits]
        names = ("average_rank", "r@1", "r@10", "mrr") if measured else ()
        return {name: fmean(metrics[name] for metrics in measured) for name in names}

    return validate
