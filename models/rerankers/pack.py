"""Packs a trained cross-encoder into the folder of a model, as its own re-ranker."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from turnwise.models.card import OWN_RERANKER
from turnwise.models.encoder import eight_bits
from turnwise.models.encoder.eight_bits_file import restore, store_in_8_bits
from turnwise.models.encoder.eight_bits_graph import SCALES_FILE, Arrays
from turnwise.models.encoder.export import export_graph
from turnwise.models.encoder.stated import TOKENIZER
from turnwise.models.errors import ModelError
from turnwise.models.files import replace_folder
from turnwise.models.rerankers.cascade import CONFIG, Cascade
from turnwise.models.rerankers.own import WEIGHTS, WORD_VECTORS, Facts, read_facts
from turnwise.models.rerankers.pairs import Pair, PairTokens, cut_pair

_FARTHEST = 1e-3
"""Greatest difference between the numbers of equal word vectors, one of them in float16."""


def pack(trained: Path, model: Path, cascade: Cascade, samples: Sequence[Pair]) -> None:
    """Write a model's own re-ranker into the model's folder.

    Args:
        trained: A BERT for sequence classification with one output, as transformers saves it. With
            a file of scales (`eight_bits.save`) it was trained for products of 8 bits.
        model: The folder of the model, whose word vectors and tokenizer the classifier has.
        cascade: When the re-ranker reads which hits.
        samples: Some hundreds of pairs, as `PairReranker.pair` returns them. They give the scales
            that a classifier lacks.

    Raises:
        ModelError: The classifier has other word vectors than the model.
        OSError: The folder cannot be written.
    """
    network = AutoModelForSequenceClassification.from_pretrained(trained, dtype=torch.float32)
    graph = Logits(network).eval()
    limit = AutoTokenizer.from_pretrained(trained).model_max_length
    tokens = _tokenize(model, samples, limit)
    words = _read_word_vectors(model)
    embedding = network.get_input_embeddings().weight
    if embedding.shape != words.shape or (embedding - words).abs().max() > _FARTHEST:
        raise ModelError(f"'{trained}' has other word vectors than model '{model}'")
    scales = _read_scales(network, trained, lambda: [graph.score(each) for each in tokens])
    stored = store_in_8_bits(_read_weights(network), scales, _name_matrices(network))
    _fill(network, stored, words)
    facts = Facts(limit, samples[0], graph.score(tokens[0]))
    config = network.config.to_dict() | asdict(facts) | {"cascade": asdict(cascade)}
    with replace_folder(model / OWN_RERANKER) as fresh:
        save_file(stored, fresh / WEIGHTS)
        export_graph(graph, fresh, max_tokens=limit, typed=True, shared=model / WEIGHTS)
        (fresh / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def unpack(model: Path, folder: Path) -> None:
    """Write a model's own re-ranker as `CrossEncoder` loads it, to run in torch.

    Args:
        model: The folder of the model.
        folder: The new folder; it has all weights in float32.

    Raises:
        ModelError: The re-ranker cannot be read.
        OSError: The folder cannot be written.
    """
    packed = model / OWN_RERANKER
    config = AutoConfig.from_pretrained(packed)
    network = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    _fill(network, load_file(packed / WEIGHTS), _read_word_vectors(model))
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.model_max_length = read_facts(packed).max_tokens
    with replace_folder(folder) as fresh:
        network.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)


class Logits(nn.Module):
    """A classifier with one output as a function of three tensors, (n, tokens) to (n, 1)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self._network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """Return the logits (n, 1)."""
        logits: Tensor = self._network(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).logits
        return logits

    @torch.inference_mode()
    def score(self, pair: PairTokens) -> float:
        """Return the logit of one pair."""
        ids = torch.tensor([pair.ids])
        return float(self(ids, torch.ones_like(ids), torch.tensor([pair.types])))


def _tokenize(model: Path, pairs: Sequence[Pair], limit: int) -> list[PairTokens]:
    tokenizer = Tokenizer.from_file(str(model / TOKENIZER))
    tokenizer.no_truncation()
    return [cut_pair(encoded, limit) for encoded in tokenizer.encode_batch(list(pairs))]


def _read_word_vectors(model: Path) -> Tensor:
    with safe_open(model / WEIGHTS, "pt") as weights:
        words: Tensor = weights.get_tensor(WORD_VECTORS).float()
    return words


def _read_scales(network: nn.Module, trained: Path, run: Callable[[], object]) -> Arrays:
    """Return the scales of the inputs, and let the network compute in float32 again.

    Args:
        network: The classifier.
        trained: The folder with its scales, if it has some.
        run: Runs the classifier on some hundreds of pairs.
    """
    if (trained / SCALES_FILE).exists():
        return load_file(trained / SCALES_FILE)
    eight_bits.simulate(network, run)
    scales = {name: value.numpy() for name, value in eight_bits.scales_of(network).items()}
    for _, linear in eight_bits.matrices(network):
        linear.__class__ = nn.Linear
    return scales


def _name_matrices(network: nn.Module) -> set[str]:
    """Return the names of the weights that are stored in 8 bits."""
    return {
        f"{name}.weight"
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear) and module.out_features > 1
    }


def _read_weights(network: nn.Module) -> Arrays:
    """Return the weights of a network without its word vectors."""
    return {
        name: value.numpy()
        for name, value in network.state_dict().items()
        if not name.endswith(WORD_VECTORS)
    }


def _fill(network: Any, stored: Arrays, words: Tensor) -> None:  # noqa: ANN401 - transformers has no types
    """Give a network the weights of a file, and the model's word vectors."""
    weights = {name: torch.from_numpy(array) for name, array in restore(stored).items()}
    network.load_state_dict(weights, strict=False)
    network.get_input_embeddings().weight.data = words
