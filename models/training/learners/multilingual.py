"""The learner of a multilingual encoder, which starts from an encoder of one language.

The encoder gets word pieces of other languages (`translations.py`). Then it learns the vectors that
the encoder of one language, its teacher, has for a text: both for the text itself and for its
translations (Reimers & Gurevych, 2020). So it keeps everything that was fitted on the teacher's
vectors: the heads, the space of examples, the fusion and the confidence.
"""

from collections.abc import Callable
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.models.card import CARD, read_card
from turnwise.models.encoder.rewriting import Rewriting
from turnwise.models.encoder.torch import UtteranceEncoder, encode_tokens, load_heads
from turnwise.models.errors import ModelError
from turnwise.models.evaluation.metrics import Metrics
from turnwise.models.files import replace_folder
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText, prefix
from turnwise.models.training.base import load_learnable
from turnwise.models.training.checkpoint import save_encoder, write_json
from turnwise.models.training.config import MultilingualConfig
from turnwise.models.training.corpora import (
    Corpora,
    Find,
    draw_batches,
    epoch_generator,
    read_distinct_texts,
    read_translations,
    validation_texts,
)
from turnwise.models.training.losses import distillation_loss
from turnwise.models.training.trainer import make_optimiser, warm_up_and_decay
from turnwise.models.training.translations import Translation, add_words
from turnwise.models.training.validation import encoder_validator


class MultilingualLearner(nn.Module):
    """An encoder with the words of several languages, which learns a teacher's vectors."""

    def __init__(self, config: MultilingualConfig, find: Find) -> None:
        """Read the data, load the base and its teacher, and add the new words to the base.

        Raises:
            DataError: A file of the data is missing or malformed.
            ModelError: The base or the teacher cannot be loaded, they are of different kinds, or
                the vocabulary of the base cannot get new words.
        """
        super().__init__()
        torch.manual_seed(config.seed)
        self.config = config
        self.clip = config.optimiser.clip
        teacher = config.teacher or config.base
        self._card = read_card(teacher)
        self._validate = encoder_validator(config, find, self._card.aggregation)
        translations = [read_translations(find(corpus.path)) for corpus in config.parallel]
        numbers = [corpus.pairs for corpus in config.parallel]
        self.corpora = [*zip(translations, numbers, strict=True), *read_own_language(config, find)]
        self.counts = [len(pairs) for pairs, _ in self.corpora]
        self._teacher = UtteranceEncoder(teacher, precision=config.precision)
        self._contexts = context_roles(self._teacher.kind)
        self.encoder = load_learnable(config.base)
        if config.pieces:
            add_words(self.encoder, list(chain.from_iterable(translations)), config.pieces)
        self._reader = UtteranceEncoder(
            self.encoder,
            precision=config.precision,
            heads=load_heads(config.base),
            rewriting=Rewriting(emoji=self._teacher.rewriting.emoji),
        )
        if self._reader.kind is not self._teacher.kind:
            what = f"is a {self._teacher.kind} encoder and cannot teach a {self._reader.kind} one"
            raise ModelError(f"teacher '{teacher}' {what}")

    @property
    def weights(self) -> nn.Module:
        """Everything that is learned."""
        return self

    def optimiser(self) -> torch.optim.Optimizer:
        """Return AdamW; biases and norms do not decay."""
        rates = self.config.optimiser
        return make_optimiser(
            self.parameters(), learning_rate=rates.learning_rate, weight_decay=rates.weight_decay
        )

    def rate(self, steps: int) -> Callable[[int], float]:
        """Return a function from a step to the factor on the learning rates."""
        return warm_up_and_decay(steps, self.config.optimiser.warm_up)

    def batches(self, epoch: int) -> list[list[Translation]]:
        """Return the batches of an epoch, which mix the languages."""
        config = self.config
        rng = epoch_generator(config.seed, epoch)
        return draw_batches(self.corpora, config.batch_texts, config.seed, epoch, rng)

    def loss(
        self, batch: list[Translation], rng: np.random.Generator
    ) -> tuple[dict[str, Tensor], int]:
        """Return how far the vectors and scores of the translations are from the teacher's.

        The first half of the texts are candidates, the others are utterances of a context.
        """
        half = len(batch) // 2
        contexts = rng.integers(len(self._contexts), size=len(batch) - half)
        roles = [(Role.AFTER, None)] * half + [self._contexts[index] for index in contexts]
        both = list(zip(batch, roles, strict=True))
        sources = [RoleText(pair.source, *role) for pair, role in both]
        targets = [RoleText(pair.target, *role) for pair, role in both]
        read = self._reader.tokenize(targets)
        encoded = encode_tokens(self.encoder, read, getattr(torch, self.config.precision))
        taught = torch.from_numpy(self._teacher.encode_in_roles(sources)).to(encoded)
        loss = distillation_loss((encoded[:half], encoded[half:]), (taught[:half], taught[half:]))
        return {"distil": loss}, len(batch)

    def validate(self) -> Metrics:
        """Return the average ranks of the current encoder."""
        return self._validate(self._reader)

    def save(self, folder: Path) -> None:
        """Write the current encoder, with everything that was fitted on the teacher's vectors."""
        fitted = {name: value for name, value in asdict(self._card).items() if value is not None}
        fitted.pop("encoder", None)
        space = self._teacher.example_space
        with replace_folder(folder) as fresh:
            save_encoder(self._reader, fresh)
            if self._reader.heads:
                self._reader.heads.save(fresh)
            if space:
                space.save(fresh)
            write_json(fresh / CARD, fitted | {"trained": self.config.model_dump(mode="json")})


def context_roles(kind: EncoderKind) -> list[tuple[Role, Relation | None]]:
    """Return a role and a relation for each prefix that the utterances of a context have.

    Of roles that share a prefix it is the last, `SAID`, in which heads read a text.
    """
    by_prefix: dict[str, tuple[Role, Relation | None]] = {
        prefix(kind, role, relation): (role, relation)
        for role in (Role.FIRST, Role.SECOND, Role.SAID)
        for relation in Relation
    }
    return list(by_prefix.values())


def read_own_language(config: MultilingualConfig, find: Find) -> Corpora[Translation]:
    """Return the utterances in the teacher's language, each as its own translation.

    Raises:
        DataError: A file is missing or malformed.
    """
    validating = validation_texts(config.validation, find)
    corpora = []
    for corpus in config.data:
        texts = read_distinct_texts(corpus, find, validating)
        corpora.append(([Translation(text, text) for text in texts], corpus.utterances))
    return corpora
