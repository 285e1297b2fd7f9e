"""The training loop, from top to bottom: data, model, steps, validation, checkpoint.

Read `train` first; what it calls stands below it, in the order of its use.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from models.dialogue import read_dialogues
from models.encoder import (
    batches,
    encode_texts,
    forward,
    load_sentence_transformer,
    tokenize,
    transformer_of,
)
from models.errors import DataError, TrainingError
from models.roles import Kind
from models.training import losses
from models.training.checkpoint import (
    Curves,
    State,
    load_checkpoint,
    save_checkpoint,
    save_model,
)
from models.training.config import Corpus, TrainConfig
from models.training.nli import NliHead, NliPair, read_nli
from models.training.views import Batch, View, collate, crop, spaced, views_of

LOG_SCALE, LARGEST_LOG_SCALE = math.log(20.0), math.log(100.0)
"""Inverse temperatures start at 20; past 100 InfoNCE becomes unstable."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a caller may show after a step: where training stands, and how fast it is."""

    step: int
    steps: int
    losses: dict[str, float]
    seconds_left: float
    texts_per_second: float
    validation: dict[str, float] | None


def train(
    config: TrainConfig,
    out: Path,
    *,
    find: Callable[[str], Path] = Path,
    validate: Callable[[SentenceTransformer], dict[str, float]] | None = None,
    report: Callable[[Progress], None] = lambda _: None,
    device: str | None = None,
    resume: bool = False,
) -> Path:
    """Train an encoder and leave its best checkpoint in a folder.

    Args:
        config: The run.
        out: Folder for `model/` (the best by the first metric of `validate`, where lower is
            better; without `validate` the last), `checkpoint/`, `curves.csv` and `curves.png`.
        find: From a path as the configuration names it to where the file is.
        validate: Metrics of the model as it stands.
        report: Called after every step.
        device: A torch device; without one a GPU where there is one, else the CPU.
        resume: Whether to go on from `out/checkpoint`, where there is one.

    Returns:
        The folder of the best model.

    Raises:
        DataError: A file of the data does not hold what it should.
        ModelError: The base cannot be loaded.
        TrainingError: The loss is no longer finite.
    """
    torch.manual_seed(config.seed)
    corpora = [read_corpus(corpus, find) for corpus in config.data]
    nli = [pair for path in config.nli.paths for pair in read_nli(find(path))] if config.nli else []

    learner = Learner(config, device)
    optimiser = make_optimiser(learner, config)
    seen = sum(views_an_epoch(c, v) for c, v in zip(config.data, corpora, strict=True))
    steps = config.epochs * (seen // min(config.batch_views, seen))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, learning_rate_schedule(config, steps))
    state = State(learner, optimiser, schedule)
    if resume:
        load_checkpoint(out / "checkpoint", state)
    curves = Curves(out, state.step)

    clock = Clock(steps - state.step)
    for views in islice(all_views(corpora, config), state.step, None):
        state.step += 1
        rng = np.random.default_rng([config.seed, state.step])
        batch = collate([crop(view, config.turns, rng) for view in views], config.kind)
        pairs = draw_nli(nli, config, rng)
        texts = batch.texts + [text for pair in pairs for text in (pair.premise, pair.hypothesis)]

        parts = backward(learner, texts, partial(learner, batch=batch, pairs=pairs, rng=rng))
        limit_gradient(learner, config)
        rate = schedule.get_last_lr()[0]
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
        learner.bound_scales()

        metrics = None
        if state.step % config.validation.every == 0 or state.step == steps:
            model = learner.blended()
            metrics = validate(model) if validate else {}
            score = next(iter(metrics.values()), state.best)
            if score <= state.best:
                state.best = score
                save_model(model, out / "model", config)
            save_checkpoint(out / "checkpoint", state)
        curves.add(state.step, float(rate), parts, metrics)
        report(Progress(state.step, steps, parts, *clock.tick(len(texts)), metrics))
    return out / "model"


def read_corpus(corpus: Corpus, find: Callable[[str], Path]) -> list[View]:
    """Return all views of a corpus, less the dialogues that must not be trained on."""
    path = find(corpus.path)
    left_out = read_left_out(find(corpus.leave_out)) if corpus.leave_out else set()
    dialogues = (d for d in read_dialogues(path) if d.id not in left_out)
    views = [view for dialogue in dialogues for view in views_of(dialogue)]
    if not views:
        raise DataError("no dialogue in it has an answer to learn from", str(path))
    return views


def read_left_out(path: Path) -> set[str]:
    """Return the dialogue ids of a JSON object of lists.

    Raises:
        DataError: The file holds something else.
    """
    try:
        lists = TypeAdapter(dict[str, list[str]]).validate_json(path.read_bytes())
    except ValidationError as error:
        raise DataError("expected an object of lists of dialogue ids", str(path)) from error
    return {identifier for identifiers in lists.values() for identifier in identifiers}


class Learner(nn.Module):
    """The encoder and what is learned beside it: two inverse temperatures, an NLI head."""

    def __init__(self, config: TrainConfig, device: str | None = None) -> None:
        """Load the base and give it the special tokens of the kind that it will become."""
        super().__init__()
        self.config = config
        self.encoder = load_sentence_transformer(config.base, device)
        add_role_tokens(self.encoder, config.kind)
        self._base = deepcopy(self.encoder.state_dict()) if config.keep_base else {}
        if self.encoder.device.type == "cpu":
            # The fused kernel's backward pass is twice as slow as plain matrix products there.
            transformer_of(self.encoder).set_attn_implementation("eager")
        self.query_log_scale = nn.Parameter(torch.tensor(LOG_SCALE))
        self.reach_log_scale = nn.Parameter(torch.tensor(LOG_SCALE))
        dimension = transformer_of(self.encoder).config.hidden_size
        self.nli_head = NliHead(dimension) if config.objectives.nli else None
        # Dropout stays off: it is slow on a CPU, and the batches regularise enough.
        self.to(self.encoder.device).eval()

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
        weigh, triple = self.config.objectives, self.config.kind is Kind.TRIPLE
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
        for name, weights in model.state_dict().items():
            if weights.is_floating_point():
                weights.lerp_(self._base[name], self.config.keep_base)
        return model

    def bound_scales(self) -> None:
        """Keep the temperatures where InfoNCE is stable."""
        for scale in (self.query_log_scale, self.reach_log_scale):
            scale.data.clamp_(max=LARGEST_LOG_SCALE)


def add_role_tokens(model: SentenceTransformer, kind: Kind) -> None:
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


def limit_gradient(learner: Learner, config: TrainConfig) -> None:
    """Scale the gradient down to the largest norm.

    Raises:
        TrainingError: It is not finite: the run has diverged.
    """
    norm = nn.utils.clip_grad_norm_(learner.parameters(), config.optimiser.clip)
    if not torch.isfinite(norm):
        raise TrainingError("training diverged: try a smaller learning rate")


def learning_rate_schedule(config: TrainConfig, steps: int) -> Callable[[int], float]:
    """Return the factor on the learning rate by step: linear warm-up, linear decay."""
    warm_up = max(1, round(config.optimiser.warm_up * steps))
    return lambda step: min((step + 1) / warm_up, max(0.0, (steps - step) / (steps - warm_up + 1)))


def plan_epoch(
    corpora: Sequence[Sequence[View]], config: TrainConfig, epoch: int
) -> list[list[View]]:
    """Return the batches of an epoch; the same for the same seed.

    A corpus that is sampled goes on where the last epoch stopped, in an order that is drawn
    anew for each pass. Batches mix the corpora: negatives of one domain alone teach that a
    common topic says nothing. A batch is spaced as a whole: among its negatives style tells
    nothing either.
    """
    rng = np.random.default_rng([config.seed, 2**32 - 1, epoch])
    chosen: list[View] = []
    for corpus, views in zip(config.data, corpora, strict=True):
        wanted = views_an_epoch(corpus, views)
        seen = range(epoch * wanted, (epoch + 1) * wanted)
        orders = {
            done: np.random.default_rng([config.seed, done]).permutation(len(views))
            for done in {n // len(views) for n in seen}
        }
        chosen += [views[orders[n // len(views)][n % len(views)]] for n in seen]
    size = min(config.batch_views, len(chosen))
    order = rng.permutation(len(chosen))[: len(chosen) // size * size]
    planned = [[chosen[place] for place in places] for places in order.reshape(-1, size)]
    return [
        [spaced(view) for view in batch] if rng.random() < config.spaced else batch
        for batch in planned
    ]


def views_an_epoch(corpus: Corpus, views: Sequence[View]) -> int:
    """Return how many views of a corpus an epoch sees."""
    return min(corpus.views or len(views), len(views))


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


class Clock:
    """Time left and texts a second, since training began or was taken up again."""

    def __init__(self, steps: int) -> None:
        self._left, self._done, self._texts = steps, 0, 0
        self._start = time.monotonic()

    def tick(self, texts: int) -> tuple[float, float]:
        """Count a step; return the seconds left and the texts a second."""
        self._left, self._done, self._texts = self._left - 1, self._done + 1, self._texts + texts
        seconds = time.monotonic() - self._start
        return seconds / self._done * self._left, self._texts / seconds
