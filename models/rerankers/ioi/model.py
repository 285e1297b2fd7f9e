"""IoI: the interaction-over-interaction network as a re-ranker of a short list."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from turnwise.models.arrays import Float32
from turnwise.models.card import model_name
from turnwise.models.encoder.torch import batches, default_device, digest
from turnwise.models.errors import ModelError
from turnwise.models.network_folder import load_weights, read_sizes, save_reranker
from turnwise.models.rerankers.ioi.network import (
    InteractionNetwork,
    Pairs,
    Shape,
    Sizes,
    final_score,
)
from turnwise.models.rerankers.ioi.vocabulary import PADDING, Vocabulary

WordIds = tuple[int, ...]

Example = tuple[tuple[WordIds, ...], WordIds]
"""The word ids of a context's utterances, and of a response."""

VOCABULARY = "words.json"
PAIR_WORDS = 2048
"""Words of a batch of pairs: larger batches would not fit a processor's cache."""


class IoI:
    """A trained network with its vocabulary.

    Attributes:
        name: The folder's name, or the name given.
    """

    def __init__(
        self, network: InteractionNetwork, vocabulary: Vocabulary, name: str = "ioi"
    ) -> None:
        self.network = network
        self.vocabulary = vocabulary
        self.name = name

    @classmethod
    def load(cls, folder: str | Path, device: str | None = None) -> Self:
        """Load a network that `save` wrote.

        Args:
            folder: The network's folder.
            device: A torch device; by default a GPU if there is one, else the CPU.

        Raises:
            ModelError: The folder holds no such network.
        """
        folder = Path(folder)
        try:
            sizes = Sizes.model_validate(read_sizes(folder, "ioi"))
        except ValidationError as error:
            raise ModelError(f"'{folder}' names sizes that do not fit: {error}") from error
        vocabulary = Vocabulary.load(folder / VOCABULARY)
        if len(vocabulary) != sizes.vocabulary:
            raise ModelError(f"'{folder}': {VOCABULARY} does not hold the words of the weights")
        network = InteractionNetwork(sizes)
        load_weights(network, folder)
        return cls(network.to(default_device(device)).eval(), vocabulary, model_name(folder))

    def save(self, folder: Path, trained: object = None) -> None:
        """Write the network, the vocabulary and the recipe of the training run."""
        save_reranker(folder, "ioi", self.network, self.network.sizes.model_dump(), trained)
        self.vocabulary.save(folder / VOCABULARY)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of network and vocabulary; equal if scores are equal."""
        sizes = self.network.sizes
        # This order of names is part of every fingerprint that a service ever stored. `compressed`
        # came later; networks that differ in it also differ in their weights.
        names = ("vocabulary", *(name for name in Shape.model_fields if name != "compressed"))
        described = ", ".join(f"{name}={getattr(sizes, name)!r}" for name in names)
        seed = f"(Sizes({described}), {self.vocabulary.words!r})"
        return digest(seed, self.network.state_dict())

    def scores(self, context: Sequence[str], candidates: Sequence[str]) -> Float32:
        """Score all candidates for one context.

        A score does not depend on the other candidates, up to float tolerance.

        Args:
            context: Texts of its utterances, at least one, the newest last.
            candidates: C texts.

        Returns:
            (C,) float32, higher is better: between 0 and L for a network of L blocks trained with
            the local loss, a logit with the global one (`final_score`).

        Raises:
            ValueError: The context has no utterance.
        """
        context_ids = self.context_ids(context)
        if not candidates:
            return np.empty(0, np.float32)
        examples = [(context_ids, self.word_ids(text)) for text in candidates]
        with torch.inference_mode():
            logits = match(self.network, examples)
            scores: Float32 = final_score(logits, self.network.sizes.objective).cpu().numpy()
        return scores

    def context_ids(self, context: Sequence[str]) -> tuple[WordIds, ...]:
        """Return the word ids of a context's newest utterances.

        Raises:
            ValueError: The context has no utterance.
        """
        if not context:
            raise ValueError("a context needs at least one utterance")
        return tuple(self.word_ids(text) for text in context[-self.network.sizes.turns :])

    def word_ids(self, text: str) -> WordIds:
        """Return the ids of a text's words, at most as many as the network takes."""
        return tuple(self.vocabulary.ids(text, self.network.sizes.words))


def match(network: InteractionNetwork, examples: Sequence[Example]) -> Tensor:
    """Return (E, L) logits of E examples, one for each block.

    Pairs of an utterance and a response go through the blocks in batches of like length, which
    need little padding; each distinct text of a batch is embedded once.
    """
    device = network.embedding.weight.device
    pairs = [(utterance, response) for context, response in examples for utterance in context]
    lengths = [max(len(utterance), len(response)) for utterance, response in pairs]
    groups = list(batches(lengths, PAIR_WORDS))
    matched = [
        network.match(_index_pairs([pairs[index] for index in group], device)) for group in groups
    ]
    order = torch.tensor([index for group in groups for index in group], device=device)
    turns = torch.tensor([len(context) for context, _ in examples])
    return network.score(torch.cat(matched, dim=1)[:, torch.argsort(order)], turns)


def _index_pairs(pairs: Sequence[tuple[WordIds, WordIds]], device: torch.device) -> Pairs:
    utterances, of_utterance = _index_texts([utterance for utterance, _ in pairs])
    responses, of_response = _index_texts([response for _, response in pairs])
    tensors = (utterances, responses, of_utterance, of_response)
    return Pairs(*(tensor.to(device) for tensor in tensors))


def _index_texts(texts: Sequence[WordIds]) -> tuple[Tensor, Tensor]:
    """Return (n, longest) distinct texts, padded, and the row of each text among them."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    ids = np.full((len(rows), max(map(len, rows))), PADDING, np.int64)
    for text, row in rows.items():
        ids[row, : len(text)] = text
    return torch.from_numpy(ids), torch.tensor([rows[text] for text in texts])
