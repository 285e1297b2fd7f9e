"""The training of an encoder, from top to bottom: data, model, gradients.

Read `train` first; what it calls stands below it, in the order of its use.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from turnwise.models.encoder import (
    batches,
    dimension_of,
    encode_texts,
    forward,
    is_truncated,
    tokenize,
    transformer_of,
)
from turnwise.models.errors import DataError, ModelError
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText, encoder_kind, prefixed
from turnwise.models.training import losses
from turnwise.models.training.checkpoint import load_learnable, save_model
from turnwise.models.training.config import Corpus, TrainConfig
from turnwise.models.training.corpora import (
    Find,
    count_steps,
    draw_batches,
    read_source,
    recipe_of,
    warn_of_cut_texts,
)
from turnwise.models.training.loop import Report, Run, fit, silent, warm_up_and_decay
from turnwise.models.training.nli import NliHead, NliPair, read_nli
from turnwise.models.training.validation import validator
from turnwise.models.training.views import Batch, View, collate, crop, spaced, views_of

LOG_SCALE, LARGEST_LOG_SCALE = math.log(20.0), math.log(100.0)
"""Inverse temperatures start at 20; past 100 InfoNCE becomes unstable."""


def train(
    config: TrainConfig,
    out: Path,
    *,
    find: Find = Path,
    report: Report = silent,
    device: str | None = None,
    resume: bool = False,
    successor: Path | None = None,
) -> Path:
    """Train an encoder and leave its best checkpoint in a folder.

    Args:
        config: The run.
        out: Folder for `model/` (the best by the average rank of the next utterance; without
            validation the last), `checkpoint/`, `curves.csv` and `curves.png`.
        find: From a path as the configuration names it to where the file is.
        report: Called after every step.
        device: A torch device; without one a GPU where there is one, else the CPU.
        resume: Whether to go on from `out/checkpoint`, where there is one.
        successor: Folder of the run that starts from this one's model, where there is one; its
            checkpoint is dropped before this one's next step.

    Returns:
        The folder of the best model.

    Raises:
        DataError: A file of the data does not hold what it should.
        ModelError: The base cannot be loaded.
        TrainingError: The loss is no longer finite, or the checkpoint is not one of this run.
    """
    validate = validator(config, find)
    torch.manual_seed(config.seed)
    corpora, nli = read_data(config, find)
    learner = Learner(config, device)
    for corpus, views in zip(config.data, corpora, strict=True):
        dialogues = dict.fromkeys(view.dialogue for view in views)
        warn_of_cut_texts(str(find(corpus.path)), dialogues, learner.is_truncated)

    def gradients(done: int) -> Iterator[tuple[dict[str, float], int]]:
        for step, views in enumerate(islice(all_views(corpora, config), done, None), done + 1):
            rng = np.random.default_rng([config.seed, step])
            learner.bound_scales()
            batch = collate([crop(view, config.turns, rng) for view in views], config.kind)
            pairs = draw_nli(nli, config, rng)
            nli_texts = [text for pair in pairs for text in (pair.premise, pair.hypothesis)]
            texts = batch.texts + nli_texts
            loss = partial(learner, batch=batch, pairs=pairs, rng=rng)
            yield backward(learner, texts, loss), len(texts)

    recipe = recipe_of(config, [*sampled(corpora, config), (nli, None)])
    if Path(config.base).is_relative_to(out):  # an earlier stage, which moves with the run
        recipe["base"] = str(Path(config.base).relative_to(out))
    steps = count_steps(sampled(corpora, config), config.batch_views, config.epochs)
    run = Run(
        learner=learner,
        recipe=recipe,
        optimiser=make_optimiser(learner, config),
        rate=warm_up_and_decay(steps, config.optimiser.warm_up),
        steps=steps,
        every=config.validation.every,
        gradients=gradients,
        validate=lambda: validate(learner.blended()),
        save=lambda: save_model(learner.blended(), out / "model", config),
        clip=config.optimiser.clip,
    )
    fit(run, out, resume=resume, report=report, successor=successor)
    return out / "model"


def read_data(config: TrainConfig, find: Find) -> tuple[list[list[View]], list[NliPair]]:
    """Return all views of each corpus, and all NLI pairs.

    Raises:
        DataError: A file does not hold what it should, or all the corpora a single dialogue.
    """
    corpora = [read_corpus(corpus, find) for corpus in config.data]
    if len({view.dialogue for views in corpora for view in views}) < 2:
        file = str(find(config.data[0].path))
        raise DataError("no second dialogue, which the first could be told from", file)
    nli = [pair for path in config.nli.paths for pair in read_nli(find(path))] if config.nli else []
    return corpora, nli


def read_corpus(corpus: Corpus, find: Find) -> list[View]:
    """Return all views of a corpus, less the dialogues that must not be trained on."""
    views = [view for dialogue in read_source(corpus, find) for view in views_of(dialogue)]
    if not views:
        raise DataError("no dialogue in it has an answer to learn from", str(find(corpus.path)))
    return views


class Learner(nn.Module):
    """The encoder and what is learned beside it: two inverse temperatures, an NLI head."""

    def __init__(self, config: TrainConfig, device: str | None = None) -> None:
        """Load the base and give it the special tokens of the kind that it will become."""
        super().__init__()
        self.config = config
        self.encoder = load_learnable(config.base, device)
        add_role_tokens(self.encoder, config.kind)
        found = encoder_kind(self.encoder.tokenizer.get_vocab())
        if found is not config.kind:
            what = f"is a {found} encoder and cannot become a {config.kind} one"
            raise ModelError(f"base '{config.base}' {what}")
        self._base = deepcopy(self.encoder.state_dict()) if config.keep_base else {}
        self.query_log_scale = nn.Parameter(torch.tensor(LOG_SCALE))
        self.reach_log_scale = nn.Parameter(torch.tensor(LOG_SCALE))
        dimension = dimension_of(self.encoder) if config.objectives.nli else 0
        self.nli_head = NliHead(dimension) if dimension else None
        self.to(self.encoder.device)

    def forward(
        self, encoded: Tensor, batch: Batch, pairs: Sequence[NliPair], rng: np.random.Generator
    ) -> dict[str, Tensor]:
        """Return the weighted parts of the loss of a step.

        Args:
            encoded: (U + 2P, d) vectors of the batch's distinct texts, then of the premises and
                hypotheses in turn.
            batch: The views.
            pairs: The NLI pairs.
            rng: Draws the random negatives.
        """
        weigh, triple = self.config.objectives, self.config.kind is EncoderKind.TRIPLE
        vectors = losses.Vectors.of(encoded, batch)
        parts: dict[str, Tensor] = {}
        if weigh.ccl:
            examples = losses.pair_examples(
                batch, weigh.window, rng, directional=weigh.directional, curved=weigh.curved
            )
            parts["ccl"] = weigh.ccl * losses.curved_loss(vectors, examples)
        if weigh.c3l:
            examples = losses.triple_examples(
                batch, weigh.window, rng, directional=weigh.directional_triples, curved=weigh.curved
            )
            parts["c3l"] = weigh.c3l * losses.curved_loss(vectors, examples)
        for rows in weigh.query_rows if weigh.running_query else ():
            queries = losses.queries(vectors, rows or None, triple=triple)
            loss = losses.running_query_loss(
                vectors, queries, self.query_log_scale.exp(), same_dialogue=weigh.same_dialogue
            )
            weight = weigh.running_query / len(weigh.query_rows)
            parts[f"running_query_{rows or 'mean'}"] = weight * loss
        if weigh.reach:
            loss = losses.reach_loss(vectors, self.reach_log_scale.exp(), weigh.window)
            parts["reach"] = weigh.reach * loss
        if weigh.order:
            parts["order"] = weigh.order * losses.order_loss(vectors, weigh.window)
        if self.nli_head is not None:
            sentences = encoded[len(batch.texts) :]
            labels = torch.tensor([pair.label for pair in pairs], device=encoded.device)
            parts["nli"] = weigh.nli * self.nli_head(sentences[::2], sentences[1::2], labels)
        return parts

    def blended(self) -> SentenceTransformer:
        """Return the encoder, its weights averaged with the base's (Wortsman et al., 2022)."""
        if not self.config.keep_base:
            return self.encoder
        model = deepcopy(self.encoder)
        for name, weights in model.named_parameters():  # tied ones once
            weights.data.lerp_(self._base[name], self.config.keep_base)
        return model

    def is_truncated(self, text: str) -> bool:
        """Return whether an utterance of a context has more word pieces than the encoder reads."""
        item = RoleText(text, Role.SECOND, Relation.OTHER)
        return is_truncated(self.encoder, prefixed(self.config.kind, item))

    def bound_scales(self) -> None:
        """Keep the temperatures where InfoNCE is stable."""
        for scale in (self.query_log_scale, self.reach_log_scale):
            scale.data.clamp_(max=LARGEST_LOG_SCALE)


def add_role_tokens(model: SentenceTransformer, kind: EncoderKind) -> None:
    """Add the special tokens of a kind, each starting as the word whose part it plays."""
    words = {
        "[AFTER]": "after",
        "[BEFORE]": "before",
        "[B1]": "first",
        "[B2]": "second",
        "[E]": "me",
        "[O]": "you",
    }
    new = [token for token in kind.tokens if token not in model.tokenizer.get_vocab()]
    if not new:
        return
    model.tokenizer.add_tokens(new, special_tokens=True)
    transformer = transformer_of(model)
    transformer.resize_token_embeddings(len(model.tokenizer), mean_resizing=False)
    table = cast(nn.Embedding, transformer.get_input_embeddings()).weight.data
    for token in new:
        ids = model.tokenizer(words[token], add_special_tokens=False)["input_ids"]
        table[model.tokenizer.convert_tokens_to_ids(token)] = table[ids].mean(0)


def make_optimiser(learner: Learner, config: TrainConfig) -> torch.optim.Optimizer:
    """Return AdamW; biases, norms and temperatures do not decay."""
    matrices = [p for p in learner.parameters() if p.ndim > 1]
    vectors = [p for p in learner.parameters() if p.ndim == 1]
    scales = [p for p in learner.parameters() if p.ndim == 0]
    rates = config.optimiser
    groups = [
        {"params": matrices, "weight_decay": rates.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
        {"params": scales, "weight_decay": 0.0, "lr": rates.scale_learning_rate},
    ]
    return torch.optim.AdamW(groups, lr=rates.learning_rate, fused=True)


def plan_epoch(
    corpora: Sequence[Sequence[View]], config: TrainConfig, epoch: int
) -> list[list[View]]:
    """Return the batches of an epoch; the same for the same seed.

    Batches mix the corpora: negatives of one domain alone teach that a common topic says
    nothing. A batch is spaced as a whole: among its negatives style tells nothing either.
    """
    rng = np.random.default_rng([config.seed, 2**32 - 1, epoch])
    planned = draw_batches(sampled(corpora, config), config.batch_views, config.seed, epoch, rng)
    return [
        [spaced(view) for view in batch] if rng.random() < config.spaced else batch
        for batch in planned
    ]


def sampled(
    corpora: Sequence[Sequence[View]], config: TrainConfig
) -> list[tuple[Sequence[View], int | None]]:
    """Return each corpus with the number of views that an epoch wants of it."""
    return [(views, corpus.views) for corpus, views in zip(config.data, corpora, strict=True)]


def all_views(corpora: Sequence[Sequence[View]], config: TrainConfig) -> Iterator[list[View]]:
    """Yield the batches of all epochs."""
    for epoch in range(config.epochs):
        yield from plan_epoch(corpora, config, epoch)


def draw_nli(
    pairs: Sequence[NliPair], config: TrainConfig, rng: np.random.Generator
) -> list[NliPair]:
    """Draw the NLI pairs of a step."""
    count = config.nli.pairs if config.nli and config.objectives.nli else 0
    return [pairs[p] for p in rng.integers(len(pairs), size=count)] if count else []


def backward(
    learner: Learner, texts: list[str], loss: Callable[[Tensor], dict[str, Tensor]]
) -> dict[str, float]:
    """Encode each text of a step once, and add the gradients of the loss.

    With the gradient cache (Gao et al., 2021) the texts are encoded without a graph, the loss
    gives the gradient of each vector, and each small batch is encoded again to carry it on:
    a third more arithmetic, for memory that does not grow with the batch.
    """
    dtype = getattr(torch, learner.config.precision)
    cached = learner.config.gradient_cache
    with torch.set_grad_enabled(not cached):
        encoded = encode_texts(learner.encoder, texts, dtype)
    if cached:
        encoded.requires_grad_()
    parts = loss(encoded)
    torch.stack(list(parts.values())).sum().backward()  # type: ignore[no-untyped-call]
    if cached and encoded.grad is not None:
        tokens = tokenize(learner.encoder, texts)
        for places in batches([len(ids) for ids in tokens]):
            again = forward(learner.encoder, [tokens[p] for p in places], dtype)
            again.backward(encoded.grad[places])  # type: ignore[no-untyped-call]
    return {name: part.item() for name, part in parts.items()}
