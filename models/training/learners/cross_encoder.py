"""The learner of a small cross-encoder, which re-ranks the short list of an encoder."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from turnwise.models.encoder.torch import UtteranceEncoder, transformer_of
from turnwise.models.errors import ModelError, name_files
from turnwise.models.evaluation.metrics import Metrics
from turnwise.models.evaluation.minimal_pairs import read_minimal_pairs
from turnwise.models.evaluation.ranking import Building, RankingExample, build_ranking
from turnwise.models.files import replace_folder
from turnwise.models.rerankers.cross_encoder import CrossEncoder
from turnwise.models.rerankers.pairs import Pair
from turnwise.models.training.config import CrossEncoderConfig, MinimalPairs, PairCorpus
from turnwise.models.training.corpora import (
    Corpora,
    Find,
    Validating,
    draw_epoch,
    epoch_generator,
    read_source,
    validation_texts,
)
from turnwise.models.training.losses import list_loss
from turnwise.models.training.trainer import make_optimiser, warm_up_and_decay
from turnwise.models.training.validation import cross_encoder_validator

ALIKE = 24
"""Batches that are sorted by length together, so that little of them is padding."""
MORE = 2
"""Replies of other minimal pairs that a context of a minimal pair gets as well."""
_MARKS = re.compile(r"[.,!?;:]")


class CrossEncoderLearner:
    """The network, and the lists of candidates that it learns from."""

    clip = 1.0

    def __init__(self, config: CrossEncoderConfig, find: Find) -> None:
        """Load the base, read the data, and find the wrong responses of each list.

        Raises:
            DataError: A file of the data is missing or malformed.
            ModelError: The base cannot be loaded, or lacks a layer.
        """
        self.config = config
        encoder = UtteranceEncoder(config.base)
        self.model = load_start(config, encoder.model)
        self.model.network.train()
        validating = validation_texts(config.validation, find)
        self.corpora: Corpora[RankingExample] = [
            (read_lists(corpus, find, config, encoder, validating), corpus.pairs)
            for corpus in config.data
        ]
        if config.minimal_pairs:
            pairs = config.minimal_pairs.pairs
            examples = read_minimal_lists(config.minimal_pairs, find, config.seed)
            lists = None if pairs is None else 2 * pairs  # a pair makes two lists
            self.corpora = [*self.corpora, (examples, lists)]
        self.counts = [len(examples) for examples, _ in self.corpora]
        self._validate = cross_encoder_validator(config, find, encoder)

    @property
    def weights(self) -> nn.Module:
        """The network."""
        return self.model.network

    def optimiser(self) -> torch.optim.Optimizer:
        """Return AdamW; biases and norms do not decay."""
        rates = self.config.optimiser
        return make_optimiser(
            self.weights.parameters(),
            learning_rate=rates.learning_rate,
            weight_decay=rates.weight_decay,
        )

    def rate(self, steps: int) -> Callable[[int], float]:
        """Return a function from a step to the factor on the learning rate."""
        return warm_up_and_decay(steps, self.config.optimiser.warm_up)

    def batches(self, epoch: int) -> list[list[RankingExample]]:
        """Return the lists of each step of an epoch; those of a step are about as long."""
        config = self.config
        rng = epoch_generator(config.seed, epoch)
        drawn = draw_epoch(self.corpora, config.seed, epoch)
        shuffled = [drawn[index] for index in rng.permutation(len(drawn))]
        batches: list[list[RankingExample]] = []
        size = config.batch_lists
        for start in range(0, len(shuffled), ALIKE * size):
            part = sorted(shuffled[start : start + ALIKE * size], key=_count_characters)
            batches += [part[at : at + size] for at in range(0, len(part), size)]
        return [batches[index] for index in rng.permutation(len(batches))]

    def loss(
        self, batch: list[RankingExample], rng: np.random.Generator
    ) -> tuple[dict[str, Tensor], int]:
        """Return the losses of the lists and of their candidates."""
        pairs: list[Pair] = []
        for example in batch:
            context, candidates = self._read(example, rng)
            pairs += [self.model.pair(context, candidate) for candidate in candidates]
        tokens = self.model.tokenize(pairs)
        logits = self.model.logits(tokens)[:, 0]
        right = torch.tensor([label == 1 for example in batch for label in example.labels])
        sizes = [len(example.candidates) for example in batch]
        losses = list_loss(logits, right.to(logits.device), sizes)
        losses["pair"] = self.config.optimiser.pair_weight * losses["pair"]
        return losses, len(tokens)

    def _read(
        self, example: RankingExample, rng: np.random.Generator
    ) -> tuple[list[str], tuple[str, ...]]:
        """Return the context as the model reads it, perhaps as speech, and the candidates."""
        said = example.context
        if rng.random() < self.config.speech:
            said = tuple(
                replace(u, text=as_speech(u.text)) if u.speaker != example.speaker else u
                for u in said
            )
        return self.model.read_context(said, example.speaker), example.candidates

    def validate(self) -> Metrics:
        """Return the average rank of the true response among ten hard ones, R10@1 and MRR."""
        self.weights.eval()
        measured = self._validate(self.model)
        self.weights.train()
        return measured

    def save(self, folder: Path) -> None:
        """Write the current model."""
        with replace_folder(folder) as fresh:
            self.model.save(fresh)


def read_lists(
    corpus: PairCorpus,
    find: Find,
    config: CrossEncoderConfig,
    encoder: UtteranceEncoder,
    validating: Validating,
) -> list[RankingExample]:
    """Return a list of candidates for one response of each dialogue of a corpus.

    From a corpus that is sampled, it reads only as many dialogues as all epochs see.
    """
    dialogues = list(read_source(corpus, find, validating))
    if corpus.pairs:
        seen = corpus.pairs * config.epochs
        order = np.random.default_rng(config.seed).permutation(len(dialogues))[:seen]
        dialogues = [dialogues[index] for index in order]
    how = Building(config.sources, config.candidates, context=1, seed=config.seed)
    with name_files([find(corpus.path)]):
        return list(build_ranking(dialogues, how, encoder))


def read_minimal_lists(source: MinimalPairs, find: Find, seed: int) -> list[RankingExample]:
    """Return two lists for each minimal pair: both replies, some of others, and what was said.

    The responder's own last turn is a wrong candidate, so that no question is asked again.
    """
    pairs = read_minimal_pairs([find(path) for path in source.paths])
    replies = [reply for pair in pairs for reply in pair.replies]
    rng = np.random.default_rng(seed)
    examples = []
    for example in chain.from_iterable(pair.examples for pair in pairs):
        own = [said.text for said in example.context if said.speaker == example.speaker]
        drawn = [replies[index] for index in rng.integers(len(replies), size=MORE)]
        more = [text for text in (*own[-1:], *drawn) if text not in example.candidates]
        labels = (*example.labels, *[0] * len(more))
        examples.append(replace(example, candidates=(*example.candidates, *more), labels=labels))
    return examples


def load_start(config: CrossEncoderConfig, base: SentenceTransformer) -> CrossEncoder:
    """Return the cross-encoder that a run starts from; its word vectors do not learn.

    Raises:
        ModelError: It cannot be loaded, or the base lacks a layer.
    """
    if config.start:
        model = CrossEncoder(config.start)
    else:
        torch.manual_seed(config.seed)
        with TemporaryDirectory() as folder:
            make_network(base, config.layers, config.pieces).save_pretrained(folder)
            limit = base.tokenizer.model_max_length
            base.tokenizer.model_max_length = config.pieces
            base.tokenizer.save_pretrained(folder)
            base.tokenizer.model_max_length = limit
            model = CrossEncoder(folder)
    words = model.network.get_input_embeddings()  # type: ignore[operator]
    words.requires_grad_(requires_grad=False)
    return model


def make_network(
    base: SentenceTransformer, layers: Sequence[int], positions: int
) -> PreTrainedModel:
    """Return an untrained classifier with word vectors and some layers of a base.

    Raises:
        ModelError: The base has an architecture without `encoder.layer`, lacks a layer, or reads
            fewer positions.
    """
    encoder = transformer_of(base)
    stack = getattr(getattr(encoder, "encoder", None), "layer", ())
    if max(layers) >= len(stack):
        raise ModelError(f"the base has no layer {max(layers)}: it has {len(stack)}")
    if positions > (most := encoder.config.max_position_embeddings):
        raise ModelError(f"the base reads {most} word pieces at most, not {positions}")
    config = type(encoder.config).from_dict(
        {
            **encoder.config.to_dict(),
            "num_hidden_layers": len(layers),
            "num_labels": 1,
            "max_position_embeddings": positions,
            "hidden_dropout_prob": 0.0,  # slow on a CPU, and the lists regularise enough
            "attention_probs_dropout_prob": 0.0,
        }
    )
    network: PreTrainedModel = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    body = network.base_model
    weights = body.state_dict()
    for name, own in weights.items():
        numbered = re.sub(
            r"^encoder\.layer\.(\d+)", lambda m: f"encoder.layer.{layers[int(m[1])]}", name
        )
        taught = encoder.state_dict().get(numbered)
        if taught is not None:
            own.copy_(taught[: len(own)])
    return network


def as_speech(text: str) -> str:
    """Return a text in lower case without marks; one of marks alone stays."""
    return _MARKS.sub("", text.lower()).strip() or text


def _count_characters(example: RankingExample) -> int:
    context = sum(len(said.text) for said in example.context[-3:])
    return context + max(map(len, example.candidates))
