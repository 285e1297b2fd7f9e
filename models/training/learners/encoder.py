"""The learner of an encoder of any kind (`EncoderKind` in `roles.py`)."""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from turnwise.models.card import find_file
from turnwise.models.data import Dialogue, Utterance
from turnwise.models.encoder import eight_bits
from turnwise.models.encoder.eight_bits_graph import SCALES_FILE
from turnwise.models.encoder.head_arrays import HEADS
from turnwise.models.encoder.heads import RoleHeads
from turnwise.models.encoder.rewriting import Rewriting
from turnwise.models.encoder.torch import (
    UtteranceEncoder,
    dimension_of,
    encode_tokens,
    forward,
    load_heads,
    transformer_of,
)
from turnwise.models.errors import DataError, ModelError
from turnwise.models.evaluation.metrics import Metrics
from turnwise.models.evaluation.minimal_pairs import read_minimal_pairs
from turnwise.models.evaluation.split import next_speaker
from turnwise.models.roles import (
    EncoderKind,
    Relation,
    Role,
    RoleText,
    candidate_inputs,
    read_as,
    said_inputs,
)
from turnwise.models.training import losses
from turnwise.models.training.base import load_base
from turnwise.models.training.checkpoint import save_model
from turnwise.models.training.config import EncoderConfig
from turnwise.models.training.corpora import (
    Corpora,
    Find,
    NliPair,
    draw_batches,
    epoch_generator,
    read_nli,
    read_windows,
    validation_texts,
    warn_of_cut_texts,
)
from turnwise.models.training.frozen import Encode, FrozenEncoder
from turnwise.models.training.noise import add_noise
from turnwise.models.training.similar import SimilarUtterances
from turnwise.models.training.trainer import warm_up_and_decay
from turnwise.models.training.validation import encoder_validator
from turnwise.models.training.windows import (
    Examples,
    Window,
    WindowBatch,
    collate,
    crop,
    pair_examples,
    spaced,
    triple_examples,
)

Task = tuple[Sequence[RoleText | str], Callable[[Tensor], Iterator[tuple[str, Tensor]]]]
"""Texts that a step encodes, in roles or as the encoder reads them, and a function from their
vectors to the parts of the loss."""

START_TEXTS = 8000
"""Texts from which new heads start."""
SCALE_TEXTS = 1000
"""Texts on which an encoder in 8 bits measures the scales of its inputs."""
LOG_SCALE = math.log(20.0)
LARGEST_LOG_SCALE = math.log(100.0)
"""Inverse temperatures start at 20; above 100 InfoNCE becomes unstable."""

_OF_UTTERANCES = [(role, of) for role in (Role.FIRST, Role.SECOND) for of in Relation]
"""The context roles and relations of what was said."""


class EncoderLearner(nn.Module):
    """The encoder, its heads, and what else is learned: temperatures, an NLI head."""

    def __init__(self, config: EncoderConfig, find: Find) -> None:
        """Read the data, load the base, and add the special tokens of the kind to it.

        Raises:
            DataError: A file of the data is missing or malformed.
            ModelError: The base cannot be loaded, or cannot become an encoder of this kind.
        """
        super().__init__()
        self.config = config
        self.clip = config.optimiser.clip
        self._validate = encoder_validator(config, find, config.aggregation)
        # The order from here on is part of a run. Loading a model and making new weights draw from
        # torch's generator, and a resumed run must draw the same `_base`. A checkpoint has the
        # moments of the parameters in the order in which they are set here.
        torch.manual_seed(config.seed)
        self.corpora, self._nli = read_data(config, find)
        self.counts = [len(windows) for windows, _ in self.corpora] + [len(self._nli)]
        self._similar = read_similar(config, find)
        self._pairs = read_minimal_windows(config, find)

        self.encoder = load_base(config)
        self.heads = make_heads(config, self.encoder)
        self._rewriting = self._read_rewriting()
        self._reader = self._wrap(self.encoder, self.heads)
        precision = getattr(torch, config.precision)
        self._encode: Encode = partial(encode_tokens, self.encoder, dtype=precision)
        if config.keeps_encoder:
            self._encode = FrozenEncoder(self._encode)
        self._teacher = load_teacher(config)
        if self.heads and self._teacher and load_heads(config.base) is None:
            self._start_heads(self.heads, self._teacher)
        self._scale_tokens = self._draw_scale_tokens() if config.eight_bits else []
        if config.eight_bits:
            self._simulate_eight_bits(self.encoder)
        self._base = deepcopy(_parameters(self.encoder, self.heads)) if config.keep_base else []

        self.query_log_scale = _make_log_scale()
        self.reach_log_scale = _make_log_scale()
        self.similarity_log_scale = _make_log_scale() if config.objectives.similarity else None
        self.nli_head = (
            losses.NliHead(dimension_of(self.encoder)) if config.objectives.nli else None
        )
        self.to(self.encoder.device)
        self._warn_of_cut_texts(find)

    def _warn_of_cut_texts(self, find: Find) -> None:
        for corpus, (windows, _) in zip(self.config.data, self.corpora, strict=True):
            dialogues = dict.fromkeys(window.dialogue for window in windows)
            warn_of_cut_texts(str(find(corpus.path)), dialogues, self.is_truncated)

    def _read_rewriting(self) -> Rewriting:
        """Return how the base rewrites texts; a list of words gets those of the corpora, too."""
        base = Rewriting.of_model(self.config.base)
        if base.spelling is None:
            return base
        windows = chain.from_iterable(windows for windows, _ in self.corpora)
        dialogues = dict.fromkeys(window.dialogue for window in windows)
        texts = (said.text for dialogue in dialogues for said in dialogue.utterances)
        return base._replace(spelling=base.spelling.with_words_of(texts))

    def _wrap(self, model: SentenceTransformer, heads: RoleHeads | None) -> UtteranceEncoder:
        """Return a model as a service reads texts with it."""
        precision = self.config.precision
        return UtteranceEncoder(model, precision=precision, heads=heads, rewriting=self._rewriting)

    @property
    def weights(self) -> nn.Module:
        """Everything that is learned."""
        return self

    def optimiser(self) -> torch.optim.Optimizer:
        """Return AdamW; biases, norms and temperatures do not decay."""
        matrices = [p for p in self.parameters() if p.ndim > 1]
        vectors = [p for p in self.parameters() if p.ndim == 1]
        scales = [p for p in self.parameters() if p.ndim == 0]
        rates = self.config.optimiser
        groups = [
            {"params": matrices, "weight_decay": rates.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
            {"params": scales, "weight_decay": 0.0, "lr": rates.scale_learning_rate},
        ]
        return torch.optim.AdamW(groups, lr=rates.learning_rate, fused=True)

    def rate(self, steps: int) -> Callable[[int], float]:
        """Return a function from a step to the factor on the learning rates."""
        return warm_up_and_decay(steps, self.config.optimiser.warm_up)

    def batches(self, epoch: int) -> list[list[Window]]:
        """Return the batches of an epoch.

        Batches mix the corpora, so that a reply differs from its negatives by topic as well. Either
        all windows of a batch are `spaced` or none, so that it does not differ by style.
        """
        config = self.config
        rng = epoch_generator(config.seed, epoch)
        drawn = draw_batches(self.corpora, config.batch_windows, config.seed, epoch, rng)
        return [
            [spaced(window) for window in batch] if rng.random() < config.spaced else batch
            for batch in drawn
        ]

    def loss(self, batch: list[Window], rng: np.random.Generator) -> tuple[dict[str, Tensor], int]:
        """Crop the windows, encode each of their texts once, and return the parts of the loss.

        Heads give every utterance all roles at once, so both sides of a window are trained.
        """
        for scale in (self.query_log_scale, self.reach_log_scale):
            scale.data.clamp_(max=LARGEST_LOG_SCALE)  # InfoNCE is stable below
        tasks = [self._make_window_task(batch, rng), *self._make_other_tasks(rng)]
        counts = [len(texts) for texts, _ in tasks]
        texts = [text for texts, _ in tasks for text in texts]
        encoded = self._encode(self._reader.tokenize(texts)).split(counts)
        parts: dict[str, Tensor] = {}
        for (_, losses_of), vectors in zip(tasks, encoded, strict=True):
            parts |= losses_of(vectors)
        return parts, len(texts)

    def _make_window_task(self, batch: list[Window], rng: np.random.Generator) -> Task:
        """Return the task of the dialogues."""
        windows = [crop(window, self.config.turns, rng) for window in batch]
        if self.heads:
            windows = [side for window in windows for side in window.both_sides()]
        laid_out = collate(windows, self.config.kind)

        def losses_of(encoded: Tensor) -> Iterator[tuple[str, Tensor]]:
            vectors = losses.Vectors.of(encoded, laid_out, self.heads)
            yield from self._compute_losses(vectors, laid_out, rng)
            if self.heads:
                yield "supposed", losses.supposed_loss(vectors)
            if self._teacher:
                distilled = self._distil(self._teacher, laid_out, encoded, rng)
                yield "distil", self.config.objectives.distil * distilled

        return laid_out.draw_noisy_items(self.config.noise, rng), losses_of

    def _make_other_tasks(self, rng: np.random.Generator) -> Iterator[Task]:
        """Yield the tasks of texts that are no dialogues, as far as the run has them."""
        if self.config.nli and self.nli_head is not None:
            yield self._make_nli_task(self.config.nli.pairs, self.nli_head, rng)
        if self._similar is not None and self.similarity_log_scale is not None:
            yield self._make_similarity_task(self._similar, self.similarity_log_scale, rng)
        if self.config.minimal_pairs:
            yield self._make_minimal_pairs_task(self.config.minimal_pairs.pairs, rng)

    def _make_nli_task(self, number: int, head: losses.NliHead, rng: np.random.Generator) -> Task:
        pairs = [self._nli[index] for index in rng.integers(len(self._nli), size=number)]
        labels = torch.tensor([pair.label for pair in pairs], device=self.encoder.device)

        def losses_of(encoded: Tensor) -> Iterator[tuple[str, Tensor]]:
            loss = head(encoded[::2], encoded[1::2], labels)
            yield "nli", self.config.objectives.nli * loss

        return [text for pair in pairs for text in (pair.premise, pair.hypothesis)], losses_of

    def _make_similarity_task(
        self, similar: SimilarUtterances, log_scale: Tensor, rng: np.random.Generator
    ) -> Task:
        """Return the task of utterances that are compared as examples are."""
        texts, taught = similar.draw(rng)
        noise = self.config.noise
        said = [add_noise(text, rng) if rng.random() < noise else text for text in texts]

        def losses_of(encoded: Tensor) -> Iterator[tuple[str, Tensor]]:
            theirs = torch.from_numpy(taught).to(encoded)
            loss = losses.similarity_loss(encoded, theirs, log_scale.exp())
            yield "similarity", self.config.objectives.similarity * loss

        return said_inputs(said), losses_of

    def _make_minimal_pairs_task(self, number: int, rng: np.random.Generator) -> Task:
        """Return the task of minimal pairs, by the running query that the card will recommend."""
        drawn = rng.integers(len(self._pairs), size=number)
        laid_out = collate([w for i in drawn for w in self._pairs[i]], self.config.kind)

        def losses_of(encoded: Tensor) -> Iterator[tuple[str, Tensor]]:
            vectors = losses.Vectors.of(encoded, laid_out, self.heads)
            rows = self.config.aggregation.summed
            queries = losses.running_queries(vectors, rows, paired=self.config.kind.paired)
            loss = losses.minimal_pairs_loss(vectors, queries)
            yield "minimal_pairs", self.config.objectives.minimal_pairs * loss

        return laid_out.draw_noisy_items(self.config.noise, rng), losses_of

    def _compute_losses(
        self, vectors: losses.Vectors, batch: WindowBatch, rng: np.random.Generator
    ) -> Iterator[tuple[str, Tensor]]:
        """Yield each objective with a weight, by name, and its weighted loss."""
        weigh = self.config.objectives
        if weigh.ccl:
            examples = pair_examples(
                batch,
                weigh.window,
                rng,
                directional=weigh.directional,
                curved=weigh.curved,
                random=weigh.random,
            )
            yield "ccl", weigh.ccl * losses.curved_loss(vectors, examples)
        if weigh.c3l:
            of_c3l = self._form_c3l_examples(batch, rng)
            yield "c3l", weigh.c3l * losses.curved_loss(vectors, *of_c3l)
        if weigh.running_query:
            yield from self._compute_query_losses(vectors)
        if weigh.reach:
            loss = losses.reach_loss(vectors, self.reach_log_scale.exp(), weigh.window)
            yield "reach", weigh.reach * loss
        if weigh.order:
            yield "order", weigh.order * losses.order_loss(vectors, weigh.window)

    def _form_c3l_examples(self, batch: WindowBatch, rng: np.random.Generator) -> list[Examples]:
        weigh = self.config.objectives
        triples = triple_examples(
            batch,
            weigh.window,
            rng,
            directional=weigh.directional_triples,
            curved=weigh.curved,
            targets=weigh.triple_targets,
        )
        if weigh.c3l_positives == "triples":
            return [triples]
        pairs = pair_examples(
            batch, weigh.window, rng, directional=False, curved=weigh.curved, random=False
        )
        return [pairs, triples.only(triples.score == 0)]

    def _compute_query_losses(self, vectors: losses.Vectors) -> Iterator[tuple[str, Tensor]]:
        weigh = self.config.objectives
        for rows in weigh.query_rows:
            queries = losses.running_queries(vectors, rows or None, paired=self.config.kind.paired)
            loss = losses.running_query_loss(
                vectors, queries, self.query_log_scale.exp(), same_dialogue=weigh.same_dialogue
            )
            weight = weigh.running_query / len(weigh.query_rows)
            yield f"running_query_{rows or 'mean'}", weight * loss

    def _start_heads(self, heads: RoleHeads, teacher: UtteranceEncoder) -> None:
        """Let new heads start where the base's vectors say most about the teacher's."""
        texts = self._draw_texts(START_TEXTS)
        items = [RoleText(text, *head) for head in HEADS for text in texts]

        def encode(encoder: UtteranceEncoder, items: list[RoleText]) -> Tensor:
            # In one call, which reads a text once for all roles that share its prefix.
            encoded = encoder.encode_in_roles(items).reshape(len(HEADS), len(texts), -1)
            return torch.from_numpy(encoded).to(self.encoder.device)

        read = encode(self._reader, [read_as(item) for item in items])
        heads.fit_to_teacher(read, encode(teacher, items))

    def _draw_texts(self, number: int) -> list[str]:
        """Return different texts of the first epoch's first windows."""
        windows = (window for batch in self.batches(0) for window in batch)
        said = dict.fromkeys(u.text for window in windows for u in window.utterances)
        return list(islice(said, number))

    def _draw_scale_tokens(self) -> list[list[int]]:
        """Return the word pieces of texts for the scales: half are candidates, half of contexts."""
        texts = self._draw_texts(SCALE_TEXTS)
        return self._reader.tokenize([*candidate_inputs(texts[::2]), *said_inputs(texts[1::2])])

    def _distil(
        self,
        teacher: UtteranceEncoder,
        batch: WindowBatch,
        encoded: Tensor,
        rng: np.random.Generator,
    ) -> Tensor:
        """Return the loss of a step's texts, as the teacher encodes them.

        Heads learn each utterance in one random context role. So the teacher reads it once for
        them, not four times.
        """
        as_after = np.union1d(batch.after[batch.target], batch.passed_over)
        # A single encoder reads a text alike in both roles, so that one text may be in both.
        in_context = batch.in_context
        after = encoded[as_after]
        context = encoded[in_context]
        if self.heads is None:
            with torch.no_grad():
                precision = getattr(torch, self.config.precision)
                tokens = teacher.tokenize(batch.items)
                taught = encode_tokens(teacher.model, tokens, precision)
            return losses.distillation_loss(
                (after, context), (taught[as_after], taught[in_context])
            )
        drawn = rng.integers(len(_OF_UTTERANCES), size=len(in_context))
        items = [
            RoleText(batch.items[index].text, *_OF_UTTERANCES[role])
            for index, role in zip(in_context, drawn, strict=True)
        ]
        candidates = candidate_inputs(batch.items[index].text for index in as_after)
        taught = self._read_by_teacher(teacher, [*candidates, *items]).to(encoded)
        return losses.distillation_loss(
            (after, self.heads(context, items)),
            (taught[: len(candidates)], taught[len(candidates) :]),
        )

    def _read_by_teacher(self, teacher: UtteranceEncoder, items: list[RoleText]) -> Tensor:
        """Return the teacher's vectors (n, d) of n texts in their roles."""
        if self.config.keeps_encoder and self.config.teacher == "base":
            # Its encoder is the learner's own, which knows these texts.
            read = self._encode(teacher.tokenize(items)).cpu().numpy()
            return torch.from_numpy(teacher.in_roles(read, items))
        return torch.from_numpy(teacher.encode_in_roles(items))

    def validate(self) -> Metrics:
        """Return the average ranks of the encoder as it would be kept."""
        return self._validate(self.blend_with_base())

    def save(self, folder: Path) -> None:
        """Write the current encoder."""
        save_model(self.blend_with_base(), folder, self.config)

    def blend_with_base(self) -> UtteranceEncoder:
        """Return the encoder as it is kept: averaged with the base's (Wortsman et al., 2022).

        In 8 bits its weights are rounded.
        """
        if not (self.config.keep_base or self.config.eight_bits):
            return self._wrap(self.encoder, self.heads)
        encoder, heads = deepcopy((self.encoder, self.heads))
        if self.config.keep_base:
            for weights, base in zip(_parameters(encoder, heads), self._base, strict=True):
                weights.data.lerp_(base.data, self.config.keep_base)
        if self.config.eight_bits:
            self._simulate_eight_bits(encoder)
            eight_bits.round_weights(transformer_of(encoder))
        return self._wrap(encoder, heads)

    def _simulate_eight_bits(self, encoder: SentenceTransformer) -> None:
        """Let an encoder compute in 8 bits, with the base's scales if only heads learn."""

        def run() -> None:
            for tokens in self._scale_tokens:
                forward(encoder, [tokens])

        scales = find_file(self.config.base, SCALES_FILE)
        if self.config.keeps_encoder and scales:
            eight_bits.simulate_with(transformer_of(encoder), scales)
        else:
            eight_bits.simulate(transformer_of(encoder), run)

    def is_truncated(self, text: str) -> bool:
        """Return whether an utterance of a context has more word pieces than the encoder reads."""
        return self._reader.is_too_long(RoleText(text, Role.SAID))


def _make_log_scale() -> nn.Parameter:
    """Return the logarithm of an inverse temperature."""
    return nn.Parameter(torch.tensor(LOG_SCALE))


def _parameters(encoder: SentenceTransformer, heads: RoleHeads | None) -> list[nn.Parameter]:
    return [*encoder.parameters(), *(heads.parameters() if heads else ())]


def read_data(config: EncoderConfig, find: Find) -> tuple[Corpora[Window], Sequence[NliPair]]:
    """Return all windows of each corpus, and all NLI pairs.

    Raises:
        DataError: A file is missing or malformed, or all corpora hold a single dialogue.
    """
    validating = validation_texts(config.validation, find)
    corpora = [(read_windows(corpus, find, validating), corpus.windows) for corpus in config.data]
    if len({window.dialogue for windows, _ in corpora for window in windows}) < 2:
        file = str(find(config.data[0].path))
        raise DataError("has only one dialogue; training needs others to compare it with", file)
    nli = [pair for path in config.nli.paths for pair in read_nli(find(path))] if config.nli else []
    return corpora, nli


def read_similar(config: EncoderConfig, find: Find) -> SimilarUtterances | None:
    """Return the utterances of the objective `similarity`, if the run has it.

    Raises:
        DataError: A corpus is missing or malformed, or all have too few utterances together.
        ModelError: The teacher cannot be loaded.
    """
    if not config.similar:
        return None
    validating = validation_texts(config.validation, find)
    return SimilarUtterances.read(config.similar, find, validating, config.seed)


def read_minimal_windows(config: EncoderConfig, find: Find) -> list[list[Window]]:
    """Return two windows for each minimal pair of a run: each ends with one of its two replies.

    Raises:
        DataError: A file is missing or malformed.
    """
    if not config.minimal_pairs:
        return []
    read = read_minimal_pairs([find(path) for path in config.minimal_pairs.paths])
    return [
        [_make_window(*side) for side in zip(pair.contexts, pair.replies, strict=True)]
        for pair in read
    ]


def _make_window(context: tuple[Utterance, ...], reply: str) -> Window:
    said = (*context, Utterance(next_speaker(context), reply))
    return Window(Dialogue("", said), said, said[-1].speaker)


def make_heads(config: EncoderConfig, encoder: SentenceTransformer) -> RoleHeads | None:
    """Return the heads of the base, new ones where it has none, or None for other kinds."""
    if config.kind is not EncoderKind.HEADS:
        return None
    heads = RoleHeads(dimension_of(encoder))
    if of_base := load_heads(config.base):
        heads.start_from(of_base)
    return heads.train().to(encoder.device)


def load_teacher(config: EncoderConfig) -> UtteranceEncoder | None:
    """Return the teacher of a run; None where it has none.

    Raises:
        ModelError: The teacher cannot be loaded, or lacks a role or a prefix of the encoder.
    """
    if config.teacher is None:
        return None
    name = config.base if config.teacher == "base" else config.teacher
    teacher = UtteranceEncoder(name, precision=config.precision)
    if config.kind is EncoderKind.HEADS and not teacher.kind.paired:
        raise ModelError(f"teacher '{name}' has no [B1] and [B2] to teach")
    if config.kind not in {EncoderKind.HEADS, teacher.kind}:
        what = f"is a {teacher.kind} encoder and cannot teach a {config.kind} one"
        raise ModelError(f"teacher '{name}' {what}")
    return teacher
