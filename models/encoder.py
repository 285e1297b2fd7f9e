"""The sentence encoder E: texts in roles to unit vectors."""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Literal, Self, cast

import numpy as np
import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import load_file_path
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from turnwise.models import DEFAULT_MODEL
from turnwise.models.arrays import Float32
from turnwise.models.errors import ModelError
from turnwise.models.extras import not_installed
from turnwise.models.onnx import VERSION, OnnxForward, export
from turnwise.models.roles import Relation, Role, RoleText, encoder_kind, prefixed
from turnwise.models.scores import Aggregation

Precision = Literal["float32", "bfloat16", "float16"]

CARD = "turnwise.json"
MAX_TOKENS = 256
"""Where a model states no limit of its own."""
BATCH_TOKENS = 4096

_log = logging.getLogger("turnwise.encoder")

transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]


class UtteranceEncoder:
    """Encodes texts in their roles, over any sentence-transformers folder or hub name.

    The kind of the model (C3L, CCL with or without speaker tokens, plain) is read from the
    special tokens of its vocabulary; texts get the prefixes of that kind.

    Attributes:
        name: The hub name, or the folder's as `model_name` tells it.
        kind: Which roles and relations the model tells apart.
        dimension: Length d of a vector.
        aggregation: The aggregation that the model's card recommends.
    """

    def __init__(
        self,
        name: str | Path | SentenceTransformer = DEFAULT_MODEL,
        *,
        device: str | None = None,
        precision: Precision = "float32",
    ) -> None:
        """Load a model, or take one that is loaded already.

        Args:
            name: A folder, a hub name, or a model.
            device: A torch device; without one a GPU where there is one, else the CPU.
            precision: The transformer's arithmetic. Vectors are float32 whatever it is.

        Raises:
            ModelError: Nothing that can be loaded stands there.
        """
        if isinstance(name, SentenceTransformer):
            self.model, self.name, self.aggregation = name, "model", Aggregation()
        else:
            self.model = load_sentence_transformer(name, device)
            self.name = model_name(name)
            self.aggregation = recommended_aggregation(name)
        self.kind = encoder_kind(self.model.tokenizer.get_vocab())
        self.dimension = dimension_of(self.model)
        self._forward: OnnxForward | TorchForward = TorchForward(self.model, precision)

    @classmethod
    def for_serving(
        cls,
        name: str | Path = DEFAULT_MODEL,
        *,
        device: str | None = None,
        cache: Path,
        threads: int | None = None,
    ) -> Self:
        """Load a model for one small batch at a time: float16 on a GPU, ONNX Runtime on a CPU.

        Args:
            name: A folder or a hub name.
            device: As in the constructor.
            cache: Folder of exported models, by fingerprint; a model is exported once.
            threads: Threads of one batch on a CPU; `usable_cores` where left out.

        Raises:
            ModelError: Nothing that can be loaded stands there.
        """
        encoder = cls(name, device=device)
        if encoder.model.device.type != "cpu":
            encoder._forward = TorchForward(encoder.model, "float16")
            return encoder
        try:
            encoder._forward = encoder._exported(cache, threads)
        except Exception as error:  # whatever it is, torch computes the same
            _log.warning("%s runs in torch, not in ONNX Runtime: %r", encoder.name, error)
        return encoder

    def _exported(self, cache: Path, threads: int | None) -> OnnxForward:
        folder = cache / f"{self.fingerprint}-{VERSION}"
        if not folder.exists():
            _log.info("exporting %s to ONNX, once, into %s", self.name, folder)
            export(self.model, folder)
        exported = OnnxForward(folder, self.model.tokenizer.pad_token_id, threads)
        probe = self.tokenize([RoleText(text, Role.AFTER) for text in ("a", "one that is longer")])
        if not np.allclose(exported(probe), self.forward(probe), atol=1e-4):
            raise ModelError(f"what is in '{folder}' computes something else; delete it")
        return exported

    @property
    def runtime(self) -> str:
        """What computes, such as "onnxruntime float32 on cpu"."""
        return self._forward.runtime

    @cached_property
    def fingerprint(self) -> str:
        """Digest of weights, vocabulary, pooling and kind: equal where vectors compare."""
        vocabulary = json.dumps(self.model.tokenizer.get_vocab(), sort_keys=True)
        # A module prints its settings: so the pooling counts, as does the longest text.
        settings = f"{self.model}{self.model.max_seq_length}"
        return digest(self.kind + vocabulary + settings, self.model.state_dict())

    def encode(
        self,
        texts: Sequence[str],
        role: Role,
        relation: Relation | Sequence[Relation] | None = None,
    ) -> Float32:
        """Encode texts in one role.

        Each distinct text is encoded once. A vector does not depend on what else is in the
        batch, beyond float tolerance.

        Args:
            texts: n texts, without prefixes.
            role: The part that they play.
            relation: How their speakers stand to the target's: one for all, or one a text.
                Context roles of models with speaker tokens need it.

        Returns:
            (n, d) float32, unit rows.

        Raises:
            TypeError: `texts` is one text.
            ValueError: A relation is missing, or there are not as many as texts.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of texts, not one text")
        relations: Sequence[Relation | None] = (
            [relation] * len(texts)
            if relation is None or isinstance(relation, Relation)
            else list(relation)
        )
        inputs = [RoleText(text, role, r) for text, r in zip(texts, relations, strict=True)]
        return self._encode([self.prefixed(item) for item in inputs])

    def prefixed(self, item: RoleText) -> str:
        """Return a text with its prefix: two items of one such text have one vector."""
        return prefixed(self.kind, item)

    def tokenize(self, items: Sequence[RoleText]) -> list[list[int]]:
        """Return each item's word pieces, prefix included, cut at the model's limit."""
        return tokenize(self.model, [self.prefixed(item) for item in items])

    def forward(self, tokens: list[list[int]]) -> Float32:
        """Encode n texts in word pieces as one padded batch, n ≥ 1; (n, d) unit rows."""
        return self._forward(tokens)

    def _encode(self, texts: list[str]) -> Float32:
        distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        vectors = np.empty((len(distinct), self.dimension), np.float32)
        tokens = tokenize(self.model, list(distinct)) if texts else []
        for places in batches([len(ids) for ids in tokens]):
            vectors[places] = self.forward([tokens[place] for place in places])
        return vectors[[distinct[text] for text in texts]]


class TorchForward:
    """Runs one padded batch of an encoder in torch."""

    def __init__(self, model: SentenceTransformer, precision: Precision) -> None:
        """Take a model, and the precision of its arithmetic."""
        self._model, self._dtype = model, getattr(torch, precision)
        self.runtime = f"torch {precision} on {model.device}"

    def __call__(self, tokens: list[list[int]]) -> Float32:
        """Return (n, d) unit rows of n texts in word pieces, n ≥ 1."""
        with torch.inference_mode():
            vectors: Float32 = forward(self._model, tokens, self._dtype).cpu().numpy()
        return vectors


def model_name(name: str | Path) -> str:
    """Return what a model is called: a folder by its name, a run's `RUN/model` RUN; or as named."""
    folder = Path(name).resolve()
    if not folder.is_dir():
        return str(name)
    return folder.parent.name if folder.name == "model" else folder.name


def load_sentence_transformer(name: str | Path, device: str | None = None) -> SentenceTransformer:
    """Load a sentence-transformers folder, a folder inside a Python package, or a hub name.

    `package:NAME/FOLDER` names a folder inside an installed package, for weights that come
    from a package registry.

    Raises:
        ModelError: Nothing that can be loaded stands there.
    """
    where = _located(name)
    try:
        model = SentenceTransformer(where, device=device, model_kwargs={"dtype": torch.float32})
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        of_run = f" (a run's model is in '{name}/model')" if Path(where, "model").is_dir() else ""
        raise ModelError(f"model '{name}' cannot be loaded: {error}{of_run}") from error
    model.max_seq_length = model.max_seq_length or MAX_TOKENS
    return model.eval()


def dimension_of(model: SentenceTransformer) -> int:
    """Return the length of a vector, of one that it is asked for: no layer need tell it."""
    return forward(model, tokenize(model, ["a"])).shape[1]


def recommended_aggregation(name: str | Path) -> Aggregation:
    """Return the aggregation that the card of a model names; the mean where there is no card.

    Args:
        name: As `load_sentence_transformer` takes it.

    Raises:
        ModelError: The card cannot be read, or names none that is known.
    """
    home = os.getenv("SENTENCE_TRANSFORMERS_HOME")  # where the weights of a hub name come from
    try:
        card = load_file_path(_located(name), CARD, cache_folder=home)
        if card is None:
            return Aggregation()
        field = json.loads(Path(card).read_text(encoding="utf-8"))["aggregation"]
        return TypeAdapter(Aggregation).validate_python(field)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"model '{name}': {CARD} names no aggregation: {error}") from error


def _located(name: str | Path) -> str:
    """Return the folder that a name stands for, or the hub name as it is."""
    if not str(name).startswith("package:"):
        return str(name)
    package, _, folder = str(name).removeprefix("package:").partition("/")
    try:
        return str(files(package) / folder)
    except ModuleNotFoundError as error:
        raise ModelError(f"model '{name}': {not_installed(package)}") from error


def transformer_of(model: SentenceTransformer) -> PreTrainedModel:
    """Return the transformer inside, whose attention and embeddings training changes."""
    return cast(PreTrainedModel, model[0].auto_model)


def tokenize(model: SentenceTransformer, texts: list[str]) -> list[list[int]]:
    """Return each text's word pieces, special tokens included, cut at the model's limit."""
    encoded = model.tokenizer(texts, truncation=True, max_length=model.max_seq_length)
    ids: list[list[int]] = encoded["input_ids"]
    return ids


def is_truncated(model: SentenceTransformer, text: str) -> bool:
    """Return whether a text, its prefix included, has more word pieces than a model reads."""
    tokenizer, limit = model.tokenizer, cast("int", model.max_seq_length)
    longest = len(text.encode())  # a word piece has at least one byte
    if longest + tokenizer.num_special_tokens_to_add() <= limit:
        return False
    return len(tokenizer(text, verbose=False)["input_ids"]) > limit


def batches(lengths: Sequence[int], budget: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Group texts of like length so that no padded batch passes a budget of tokens.

    Args:
        lengths: Word pieces of each text.
        budget: Tokens of a padded batch; a longer text goes alone.

    Yields:
        Places in `lengths`; each place once.
    """
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[place] > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def encode_texts(model: SentenceTransformer, texts: list[str], dtype: torch.dtype) -> torch.Tensor:
    """Encode n texts as they stand, at least one, in batches of like length; (n, d) unit rows."""
    tokens = tokenize(model, texts)
    grouped = list(batches([len(ids) for ids in tokens]))
    vectors = torch.cat([forward(model, [tokens[p] for p in places], dtype) for places in grouped])
    order = torch.tensor([place for places in grouped for place in places], device=vectors.device)
    return vectors[torch.argsort(order)]


def forward(
    model: SentenceTransformer, tokens: list[list[int]], dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Run one padded batch through the transformer and its pooling.

    Args:
        model: The encoder.
        tokens: Word pieces of each text.
        dtype: Precision of the transformer's arithmetic, by autocast where it is not float32.

    Returns:
        (n, d) float32 tensor on the model's device, unit rows.
    """
    features = {
        key: value.to(model.device)
        for key, value in model.tokenizer.pad({"input_ids": tokens}, return_tensors="pt").items()
    }
    with torch.autocast(model.device.type, dtype, enabled=dtype is not torch.float32):
        pooled = model(features)["sentence_embedding"]
    return torch.nn.functional.normalize(pooled.float(), dim=-1)


def default_device(device: str | None) -> str:
    """Return the device asked for; without one a GPU where there is one, else the CPU."""
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def digest(seed: str, weights: Mapping[str, torch.Tensor]) -> str:
    """Return 16 hexadecimal digits, equal where seed and weights are."""
    hashed = hashlib.sha256(seed.encode())
    for name, value in sorted(weights.items()):
        hashed.update(name.encode())
        hashed.update(value.to("cpu", torch.float32).numpy().tobytes())
    return hashed.hexdigest()[:16]
