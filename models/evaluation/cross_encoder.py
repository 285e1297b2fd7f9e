"""Cross-encoders: one transformer reads the context and a candidate together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from turnwise.models.encoder import model_name
from turnwise.models.errors import ModelError
from turnwise.models.evaluation.metrics import Scores

BATCH = 32


class CrossEncoderScorer:
    """Scores candidates by a sequence classifier that sentence-transformers loads.

    A classifier with one output scores with it, one of two classes with the difference of the
    second and the first. A tokenizer with a separator of its own, such as BERT's, gets the
    utterances joined by spaces and the candidate as the second text. A tokenizer without one, such
    as that of DialogRPT's GPT-2, gets an end-of-text token after every utterance. An input that is
    too long loses its start.

    Attributes:
        name: The folder's name or the hub name, as `model_name` returns it.
    """

    def __init__(self, name: str | Path, device: str | None = None) -> None:
        """Load a folder or a hub name.

        Raises:
            ModelError: The model cannot be loaded, has no trained classifier, or one of more than
                two classes.
        """
        self.name = model_name(name)
        self._model = _load(str(name), device)
        tokenizer = self._model.tokenizer
        tokenizer.truncation_side = "left"
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        self._model.model.config.pad_token_id = tokenizer.pad_token_id
        self._end = "" if tokenizer.sep_token else tokenizer.eos_token

    def scores(self, context: Sequence[str], candidates: Sequence[str]) -> Scores:
        """Return the scores (C,) of candidates after a context, higher is better."""
        logits: Scores = self._model.predict(
            [self.pair(context, candidate) for candidate in candidates],
            batch_size=BATCH,
            show_progress_bar=False,
            activation_fn=torch.nn.Identity(),
        )
        return logits[:, 1] - logits[:, 0] if logits.ndim == 2 else logits

    def pair(self, context: Sequence[str], candidate: str) -> tuple[str, str]:
        """Return the two texts that the tokenizer reads."""
        if self._end:
            return self._end.join([*context, ""]), candidate
        return " ".join(context), candidate

    def too_long(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        """Return the places of the pairs that are longer than the model reads."""
        limit = self._model.max_seq_length
        if limit is None or not pairs:
            return []
        encoded = self._model.tokenizer(list(pairs), truncation=False, verbose=False)["input_ids"]
        return [place for place, tokens in enumerate(encoded) if len(tokens) > limit]


def _load(name: str, device: str | None) -> Any:  # noqa: ANN401 - a CrossEncoder has no types
    from sentence_transformers import CrossEncoder  # noqa: PLC0415 - slow to load

    try:
        model = CrossEncoder(name, device=device, model_kwargs={"dtype": torch.float32})
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ModelError(f"cross-encoder '{name}' cannot be loaded: {error}") from error
    # The last of several modules scores. A transformer alone that has no classifier is loaded with
    # a random one.
    kinds = model.model.config.architectures or ()
    if len(model) == 1 and not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        raise ModelError(f"cross-encoder '{name}' has no trained classifier")
    if model.num_labels > 2:
        raise ModelError(f"cross-encoder '{name}' has {model.num_labels} classes, not two")
    return model
