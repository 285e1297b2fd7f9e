"""The base of a run: the encoder that it starts from, made ready to learn."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from sentence_transformers import SentenceTransformer
from torch import nn

from turnwise.models.encoder.torch import load_heads, load_sentence_transformer, transformer_of
from turnwise.models.errors import ModelError
from turnwise.models.roles import EncoderKind, can_become, encoder_kind
from turnwise.models.texts import write_count
from turnwise.models.training.config import EncoderConfig

TOKEN_WORDS = {
    "[AFTER]": "after",
    "[BEFORE]": "before",
    "[B1]": "first",
    "[B2]": "second",
    "[E]": "me",
    "[O]": "you",
}
"""The word that a special token starts with: it gets the word's vector."""


def load_base(config: EncoderConfig) -> SentenceTransformer:
    """Load the base, with the special tokens of the kind that it will become.

    Raises:
        ModelError: The base cannot be loaded, or is of a kind that cannot become this one.
    """
    encoder = load_learnable(config.base)
    with_heads = load_heads(config.base) is not None
    found = encoder_kind(encoder.tokenizer.get_vocab(), config.base, heads=with_heads)
    if not can_become(found, config.kind):
        what = f"is a {found} encoder and cannot become a {config.kind} one"
        raise ModelError(f"base '{config.base}' {what}; write kind = \"{found}\"")
    if config.depth:
        keep_layers(encoder, config.depth)
    add_role_tokens(encoder, config.kind)
    if config.layers is not None:
        freeze_all_but(encoder, config.layers)
    return encoder


def load_learnable(base: str) -> SentenceTransformer:
    """Load an encoder for training; `save_encoder` writes it.

    Dropout is off: it is slow on a CPU, and the batches regularise enough.

    Raises:
        ModelError: It cannot be loaded.
    """
    model = load_sentence_transformer(base)
    if model.device.type == "cpu":
        # The fused kernel's backward pass is twice as slow as plain matrix products there.
        transformer_of(model).set_attn_implementation("eager")
    return model


def freeze_all_but(model: nn.Module, layers: int) -> None:
    """Let only the last layers of a model's transformer learn; all of them if it has fewer."""
    model.requires_grad_(requires_grad=False)
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    stack = max(stacks, key=len)
    for layer in stack[max(0, len(stack) - layers) :]:
        layer.requires_grad_(requires_grad=True)


def keep_layers(model: SentenceTransformer, depth: int) -> None:
    """Keep some layers of a transformer, spread evenly from the first to the last.

    Raises:
        ModelError: The model has fewer layers, or an architecture without `encoder.layer`.
    """
    transformer = transformer_of(model)
    encoder: Any = getattr(transformer, "encoder", None)
    layers: Sequence[nn.Module] = getattr(encoder, "layer", ())
    if len(layers) < depth:
        raise ModelError(f"the base has no {write_count(depth, 'layer')} to keep")
    kept = np.linspace(0, len(layers) - 1, depth).round().astype(int)
    encoder.layer = nn.ModuleList([layers[index] for index in kept])
    transformer.config.num_hidden_layers = depth


def add_role_tokens(model: SentenceTransformer, kind: EncoderKind) -> None:
    """Add the special tokens of a kind, each with the vector of the word for its role."""
    new = [token for token in kind.tokens if token not in model.tokenizer.get_vocab()]
    if not new:
        return
    model.tokenizer.add_tokens(new, special_tokens=True)
    transformer = transformer_of(model)
    transformer.resize_token_embeddings(len(model.tokenizer), mean_resizing=False)
    table = cast(nn.Embedding, transformer.get_input_embeddings()).weight.data
    for token in new:
        ids = model.tokenizer(TOKEN_WORDS[token], add_special_tokens=False)["input_ids"]
        table[model.tokenizer.convert_tokens_to_ids(token)] = table[ids].mean(0)
