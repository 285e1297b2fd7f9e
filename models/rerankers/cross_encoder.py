"""Cross-encoders: one transformer reads the context and a candidate together."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import sentence_transformers
import torch

from turnwise.models.arrays import Float32
from turnwise.models.card import model_name
from turnwise.models.encoder.export import VERSION, load_or_export
from turnwise.models.encoder.onnx import OnnxForward
from turnwise.models.encoder.torch import PROBE, default_device, digest
from turnwise.models.errors import ModelError
from turnwise.models.model_files import (
    UNREADABLE,
    check_weights,
    explain_unreadable,
    hub_answers,
)
from turnwise.models.rerankers.pairs import SPEAKERS, Pair, PairReranker, PairTokens, cut_pair
from turnwise.models.texts import write_count


class CrossEncoder(PairReranker):
    """Scores candidates by a sequence classifier that sentence-transformers loads.

    The score is the output of a classifier with one output, or the second output minus the first of
    a classifier with two classes. A tokenizer with a separator of its own, such as BERT's, gets the
    utterances joined by spaces and the candidate as the second text. A tokenizer without one, such
    as DialogRPT's GPT-2, gets an end-of-text token after every utterance. A vocabulary with [E] and
    [O], such as that of the shipped model, gets one of them before every utterance.
    """

    def __init__(self, name: str | Path, device: str | None = None) -> None:
        """Load a folder or a hub name.

        Raises:
            ModelError: The model cannot be loaded, has no trained classifier or one of more than
                two classes, reads chat messages, or has a tokenizer in Python.
        """
        self.name = model_name(name)
        self._model = _load(str(name), device)
        if "message" in self._model.modalities or not self._model.tokenizer.is_fast:
            raise ModelError(
                f"cross-encoder '{name}' must be a classifier of texts with a tokenizer.json"
            )
        tokenizer = self._model.tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        self._model.model.config.pad_token_id = tokenizer.pad_token_id
        super().__init__(
            marked=all(token in tokenizer.get_vocab() for token in SPEAKERS),
            end="" if tokenizer.sep_token else tokenizer.eos_token,
        )
        self._typed = "token_type_ids" in tokenizer.model_input_names
        self._dtype = torch.float32
        self._graph = _Logits(self._model).eval()
        self._onnx: OnnxForward | None = None

    @classmethod
    def for_serving(
        cls,
        name: str | Path,
        *,
        device: str | None = None,
        cache: Path,
    ) -> Self:
        """Load a classifier for small batches: float16 on a GPU, ONNX Runtime on a CPU.

        Args:
            name: A folder or a hub name.
            device: A torch device; by default a GPU if there is one, else the CPU.
            cache: Folder of exported models, by fingerprint; a model is exported once.

        Raises:
            ModelError: As in the constructor.
        """
        model = cls(name, default_device(device))
        if model._model.device.type != "cpu":
            model._dtype = torch.float16
            return model
        probe = model.tokenize([PROBE, PROBE[::-1], PROBE[:1] * 2])
        model._onnx = load_or_export(
            model.name,
            model._graph,
            cache / f"{model.fingerprint}-{VERSION}",
            pad=model._model.tokenizer.pad_token_id,
            probe=model._inputs(probe),
            wanted=model.forward(probe),
            spin=False,  # many pairs wait, and the service needs the cores
        )
        return model

    @property
    def runtime(self) -> str:
        """The runtime, precision and device, such as "onnxruntime float32 on cpu"."""
        precision = str(self._dtype).removeprefix("torch.")
        return self._onnx.runtime if self._onnx else f"torch {precision} on {self._model.device}"

    @cached_property
    def fingerprint(self) -> str:
        """Digest of weights, vocabulary and settings; equal if scores are equal."""
        vocabulary = json.dumps(self._model.tokenizer.get_vocab(), sort_keys=True)
        return digest(f"{vocabulary}{self._model}{self._typed}", self._model.state_dict())

    def too_long(self, pairs: Sequence[Pair]) -> list[int]:
        """Return the indices of the pairs that are longer than the model reads."""
        limit = self._model.max_seq_length
        if limit is None or not pairs:
            return []
        encoded = self._model.tokenizer(list(pairs), truncation=False, verbose=False)["input_ids"]
        return [index for index, tokens in enumerate(encoded) if len(tokens) > limit]

    def tokenize(self, pairs: Sequence[Pair]) -> list[PairTokens]:
        """Return each pair's word pieces, at most as many as the model reads; see `cut_pair`."""
        encoded = self._model.tokenizer(list(pairs), truncation=False, verbose=False)
        limit = self._model.max_seq_length
        return [cut_pair(each, limit) for each in encoded.encodings]

    def forward(self, tokens: list[PairTokens]) -> Float32:
        """Return the logits (n, 1) of n pairs, as one padded batch."""
        if self._onnx:
            return self._onnx(*self._inputs(tokens))
        device = self._model.device.type
        is_half = self._dtype is not torch.float32
        with torch.inference_mode(), torch.autocast(device, self._dtype, enabled=is_half):
            logits: Float32 = self.logits(tokens).float().cpu().numpy()
        return logits

    def logits(self, tokens: list[PairTokens]) -> torch.Tensor:
        """Return the logits (n, 1) of n pairs by the network itself, which may be learning."""
        names = ("input_ids", "token_type_ids")
        features = self._model.tokenizer.pad(
            dict(zip(names, self._inputs(tokens), strict=False)), return_tensors="pt"
        ).to(self._model.device)
        logits: torch.Tensor = self._graph(**features)
        return logits

    @property
    def network(self) -> torch.nn.Module:
        """The transformer with its classifier."""
        network: torch.nn.Module = self._model.model
        return network

    def save(self, folder: Path) -> None:
        """Write the model as a folder of sentence-transformers in float32."""
        self._model.save_pretrained(str(folder), create_model_card=False)

    def _inputs(self, tokens: list[PairTokens]) -> list[list[list[int]]]:
        """Return the word pieces of pairs and, if the model reads them, their types."""
        ids = [pair.ids for pair in tokens]
        return [ids, [pair.types for pair in tokens]] if self._typed else [ids]


class _Logits(torch.nn.Module):
    """A classifier as a function of two or three tensors; it returns one column."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - a CrossEncoder has no types
        super().__init__()
        self._model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            features["token_type_ids"] = token_type_ids
        logits: torch.Tensor = self._model(features)["scores"]
        return logits[:, 1:] - logits[:, :1] if logits.shape[1] == 2 else logits


def _load(name: str, device: str | None) -> Any:  # noqa: ANN401 - a CrossEncoder has no types
    check_weights(name, name)
    try:
        weights = {"dtype": torch.float32, "use_safetensors": True}
        model = sentence_transformers.CrossEncoder(
            name,
            device=device,
            model_kwargs=weights,
            local_files_only=Path(name).is_dir() or not hub_answers(),
        )
    except UNREADABLE as error:
        why = explain_unreadable(error)
        raise ModelError(f"cross-encoder '{name}' cannot be loaded: {why}") from error
    # A model of several modules scores with the last one. A single transformer that has no
    # classifier was loaded with a random one.
    kinds = model.model.config.architectures or ()
    if len(model) == 1 and not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        raise ModelError(f"cross-encoder '{name}' has no trained classifier")
    if model.num_labels > 2:
        raise ModelError(
            f"cross-encoder '{name}' has {write_count(model.num_labels, 'class', 'classes')}, "
            "not two"
        )
    return model
