"""Loading causal language models."""

from typing import Any

from turnwise.models.encoder import default_device
from turnwise.models.errors import ModelError

MAX_TOKENS = 1024
"""Where a model states no limit of its own."""


def load_causal(name: str, device: str | None = None) -> tuple[Any, Any]:
    """Load a tokenizer and a language model by a folder or a hub name.

    Args:
        name: Which.
        device: A torch device; without one a GPU where there is one, else the CPU.

    Raises:
        ModelError: Nothing that can be loaded stands there.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - slow to load

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model: Any = AutoModelForCausalLM.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"language model '{name}' cannot be loaded: {error}") from error
    return tokenizer, model.to(default_device(device)).eval()


def max_tokens(model: Any) -> int:  # noqa: ANN401 - of transformers
    """Return how many tokens a model reads."""
    return int(getattr(model.config, "max_position_embeddings", MAX_TOKENS))
