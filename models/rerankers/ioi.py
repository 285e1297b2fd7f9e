"""IoI, the interaction-over-interaction network, as a re-ranker of a short list."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from turnwise.models.arrays import Float32
from turnwise.models.encoder import batches, default_device, digest, model_name
from turnwise.models.errors import ModelError
from turnwise.models.rerankers.folder import (
    load_weights,
    read_sizes,
    save_reranker,
)
from turnwise.models.rerankers.ioi_network import InteractionNetwork, Pairs, Sizes, final_score
from turnwise.models.rerankers.vocabulary import PADDING, Vocabulary

WordIds = tuple[int, ...]

VOCABULARY = "words.json"
PAIR_WORDS = 2048
"""Words of the pairs that are matched at once: more would not fit a processor's cache."""


class IoI:
    """A trained network with its vocabulary.

    Attributes:
        name: The folder's name, or what it was given.
    """

    def __init__(
        self, network: InteractionNetwork, vocabulary: Vocabulary, name: str = "ioi"
    ) -> None:
        self.network, self.vocabulary, self.name = network, vocabulary, name

    @classmethod
    def load(cls, folder: str | Path, device: str | None = None) -> Self:
        """Load what `save` wrote.

        Args:
            folder: The network's folder.
            device: A torch device; without one a GPU where there is one, else the CPU.

        Raises:
            ModelError: The folder holds no such network.
        """
        folder = Path(folder)
        try:
            sizes = TypeAdapter(Sizes).validate_python(read_sizes(folder, "ioi"))
        except ValidationError as error:
            raise ModelError(f"'{folder}' names sizes that do not fit: {error}") from error
        vocabulary = Vocabulary.load(folder / VOCABULARY)
        if len(vocabulary) != sizes.vocabulary:
            raise ModelError(f"'{folder}': {VOCABULARY} has not the words that were trained")
        network = InteractionNetwork(sizes)
        load_weights(network, folder)
        return cls(network.to(default_device(device)).eval(), vocabulary, model_name(folder))

    def save(self, folder: Path, trained: object = None) -> None:
        """Write network, vocabulary and the recipe that it was trained with."""
        save_reranker(folder, "ioi", self.network, asdict(self.network.sizes), trained)
        self.vocabulary.save(folder / VOCABULARY)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of network and vocabulary: equal where scores are."""
        seed = repr((self.network.sizes, self.vocabulary.words))
        return digest(seed, self.network.state_dict())

    def scores(self, context: Sequence[str], candidates: Sequence[str]) -> Float32:
        """Score all candidates for one context.

        A score does not depend on the other candidates, beyond float tolerance.

        Args:
            context: Texts of its utterances, at least one, the newest last.
            candidates: C texts.

        Returns:
            (C,), higher is better.

        Raises:
            ValueError: There is no utterance.
        """
        said = self.context_ids(context)
        if not candidates:
            return np.empty(0, np.float32)
        with torch.inference_mode():
            logits = match(self.network, [(said, self.word_ids(text)) for text in candidates])
            scores = final_score(logits, self.network.sizes.objective)
        scored: Float32 = scores.cpu().numpy()
        return scored

    def context_ids(self, context: Sequence[str]) -> tuple[WordIds, ...]:
        """Return the ids of the words of a context's newest utterances.

        Raises:
            ValueError: There is no utterance.
        """
        if not context:
            raise ValueError("a context needs at least one utterance")
        return tuple(self.word_ids(text) for text in context[-self.network.sizes.turns :])

    def word_ids(self, text: str) -> WordIds:
        """Return the ids of a text's words, at most as many as the network takes."""
        return tuple(self.vocabulary.ids(text, self.network.sizes.words))


Example = tuple[tuple[WordIds, ...], WordIds]
"""The word ids of a context's utterances, and of a response."""


def match(network: InteractionNetwork, examples: Sequence[Example]) -> Tensor:
    """Return (E, L) logits of examples, one a block.

    Pairs of an utterance and a response go through the blocks in groups of like length, so that
    little is spent on padding; each distinct text of a group is embedded once.
    """
    device = network.embedding.weight.device
    pairs = [(said, response) for context, response in examples for said in context]
    lengths = [max(len(said), len(response)) for said, response in pairs]
    groups = list(batches(lengths, PAIR_WORDS))
    matched = [network.match(_pairs([pairs[place] for place in group], device)) for group in groups]
    order = torch.tensor([place for group in groups for place in group], device=device)
    turns = torch.tensor([len(context) for context, _ in examples])
    return network.score(torch.cat(matched, dim=1)[:, torch.argsort(order)], turns)


def _pairs(pairs: Sequence[tuple[WordIds, WordIds]], device: torch.device) -> Pairs:
    said, of_said = _distinct([utterance for utterance, _ in pairs])
    responses, of_response = _distinct([response for _, response in pairs])
    return Pairs(*(tensor.to(device) for tensor in (said, responses, of_said, of_response)))


def _distinct(texts: Sequence[WordIds]) -> tuple[Tensor, Tensor]:
    """Return (n, longest) distinct texts, padded, and the place of each text among them."""
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    ids = np.full((len(places), max(map(len, places))), PADDING, np.int64)
    for row, text in enumerate(places):
        ids[row, : len(text)] = text
    return torch.from_numpy(ids), torch.tensor([places[text] for text in texts])
