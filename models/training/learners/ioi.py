"""The learner of the interaction-over-interaction network, and its draw of negatives."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from turnwise.models.encoder.torch import default_device
from turnwise.models.errors import DataError
from turnwise.models.evaluation.metrics import Metrics
from turnwise.models.evaluation.split import Context
from turnwise.models.files import replace_folder
from turnwise.models.rerankers.ioi.model import Example, IoI, WordIds, match
from turnwise.models.rerankers.ioi.network import InteractionNetwork, Sizes, matching_loss
from turnwise.models.rerankers.ioi.vocabulary import has_more_words, word_vectors
from turnwise.models.training.config import IoIConfig
from turnwise.models.training.corpora import (
    Find,
    draw_batches,
    epoch_generator,
    read_pairs,
    validation_texts,
)
from turnwise.models.training.validation import ioi_validator


class IoILearner:
    """The network over word vectors, and the true examples that it learns from."""

    clip = 1.0

    def __init__(self, config: IoIConfig, find: Find) -> None:
        """Read the data, and make an untrained network over word2vec's vectors of its texts.

        Raises:
            DataError: A file of the data is missing or malformed.
        """
        self.config = config
        is_truncated = partial(has_more_words, config.network.words)
        validating = validation_texts(config.validation, find)
        read = [
            read_pairs(corpus, find, config.network.turns, is_truncated, validating)
            for corpus in config.data
        ]
        self._validate = ioi_validator(config, find)
        torch.manual_seed(config.seed)
        self.model = make_model(config, list(chain.from_iterable(read)))
        self.corpora = [
            (in_words(pairs, self.model), corpus.pairs)
            for pairs, corpus in zip(read, config.data, strict=True)
        ]
        self.counts = [len(examples) for examples, _ in self.corpora]
        self._responses = [response for examples, _ in self.corpora for _, response in examples]
        if len(set(self._responses)) < 2:
            raise DataError("has no two responses of different words", config.data[0].path)

    @property
    def weights(self) -> nn.Module:
        """The network."""
        return self.model.network

    def optimiser(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.weights.parameters(), self.config.optimiser.learning_rate)

    def rate(self, steps: int) -> Callable[[int], float]:
        """Return the factor on the learning rate by step: exponential decay, down to the least."""
        del steps  # the decay does not depend on the length of the run
        rates = self.config.optimiser
        least = rates.least_learning_rate / rates.learning_rate
        return lambda step: max(rates.decay ** (step / rates.decay_steps), least)

    def batches(self, epoch: int) -> list[list[Example]]:
        """Return the true examples of each step of an epoch."""
        config = self.config
        rng = epoch_generator(config.seed, epoch)
        return draw_batches(self.corpora, config.batch // 2, config.seed, epoch, rng)

    def loss(self, batch: list[Example], rng: np.random.Generator) -> tuple[dict[str, Tensor], int]:
        """Return the matching loss of the true examples and of a wrong one for each."""
        torch.manual_seed(int(rng.integers(2**63)))  # of dropout
        examples = add_negatives(batch, self._responses, rng)
        network = self.model.network.train()
        objective = self.config.network.objective
        labels = torch.tensor([1.0, 0.0] * len(batch), device=network.embedding.weight.device)
        loss = matching_loss(match(network, examples), labels, objective)
        return {objective: loss}, sum(len(context) for context, _ in examples)

    def validate(self) -> Metrics:
        """Return the average rank of the true response among ten, R10@1 and MRR."""
        return self._validate(self.model)

    def save(self, folder: Path) -> None:
        """Write the current network."""
        with replace_folder(folder) as fresh:
            self.model.save(fresh, self.config.model_dump(mode="json"))


def make_model(config: IoIConfig, pairs: Sequence[Context]) -> IoI:
    """Return an untrained network over word2vec's vectors of the pairs' texts."""
    vocabulary, vectors = word_vectors(
        distinct_texts(pairs),
        config.network.dimension,
        min_count=config.word_vectors.min_count,
        epochs=config.word_vectors.epochs,
        seed=config.seed,
    )
    sizes = Sizes(vocabulary=len(vocabulary), **config.network.model_dump())
    network = InteractionNetwork(sizes)
    with torch.no_grad():
        network.embedding.weight.copy_(torch.from_numpy(vectors))
    return IoI(network.to(default_device(None)), vocabulary)


def distinct_texts(pairs: Sequence[Context]) -> list[str]:
    """Return the texts of pairs, contexts and responses, each once."""
    return list(dict.fromkeys(text for pair in pairs for text in (*pair.texts, pair.target.text)))


def in_words(pairs: Sequence[Context], model: IoI) -> list[Example]:
    """Return pairs in words, each text split once."""
    words = {text: model.word_ids(text) for text in distinct_texts(pairs)}
    return [(tuple(words[text] for text in pair.texts), words[pair.target.text]) for pair in pairs]


def add_negatives(
    examples: Sequence[Example], responses: Sequence[WordIds], rng: np.random.Generator
) -> list[Example]:
    """Return each true example, followed by one with a random wrong response.

    Args:
        examples: The true ones.
        responses: Wrong responses are drawn from these; not all alike.
        rng: Draws them.
    """
    both: list[Example] = []
    for context, response in examples:
        wrong = response
        while wrong == response:
            wrong = responses[int(rng.integers(len(responses)))]
        both += [(context, response), (context, wrong)]
    return both
