"""The sentence encoder E: from texts in roles to unit vectors."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Literal, Self, cast

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from turnwise.models import DEFAULT_MODEL
from turnwise.models.arrays import Float32
from turnwise.models.card import (
    PROBED,
    Card,
    EncoderFacts,
    Probe,
    find_file,
    locate_model,
    model_name,
    read_card,
)
from turnwise.models.encoder.base import BaseEncoder
from turnwise.models.encoder.example_space import ExampleSpace, load_example_space
from turnwise.models.encoder.export import VERSION, export_graph, load_or_export
from turnwise.models.encoder.head_arrays import HEADS_FILE
from turnwise.models.encoder.heads import RoleHeads
from turnwise.models.encoder.long_texts import cut_middle, keeps_ends
from turnwise.models.encoder.onnx import OnnxForward
from turnwise.models.encoder.rewriting import AS_WRITTEN, Rewriting
from turnwise.models.encoder.scripts import Scripts
from turnwise.models.errors import ModelError
from turnwise.models.model_files import (
    PROMPTS_FILE,
    UNREADABLE,
    check_place,
    check_prompts,
    check_weights,
    explain_unreadable,
    hub_answers,
)
from turnwise.models.roles import Relation, Role, RoleText, candidate_inputs, encoder_kind
from turnwise.models.scores import Aggregation

Precision = Literal["float32", "bfloat16", "float16"]

MAX_TOKENS = 256
"""Word pieces of the longest text, for models that state no limit."""
BATCH_TOKENS = 4096
"""Tokens of a padded batch."""

PROBE = ("a", "one that is longer")
"""Texts on which a model in another runtime is compared with torch."""
_STATED = (
    RoleText("Yes, breakfast is included in the price.", Role.AFTER),
    RoleText("Is breakfast included?", Role.FIRST, Relation.OTHER),
    RoleText(" ".join(map(str, range(300))), Role.SECOND, Relation.SAME),  # too long for most
)
"""Texts whose vectors a model's card states."""

_MODULES_FILE = "modules.json"
_TOKENIZING = Lock()
"""Held for each call of a tokenizer, since those of transformers keep the last call's limit: in
another thread, a call without a limit would be cut, or one with a limit would not."""

transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a model, as its folder holds them."""

    model: SentenceTransformer
    name: str
    card: Card
    heads: RoleHeads | None
    rewriting: Rewriting
    example_space: ExampleSpace | None = None


def _load_parts(name: str | Path, device: str | None) -> _Parts:
    return _Parts(
        model=load_sentence_transformer(name, device),
        name=model_name(name),
        card=read_card(name),
        heads=load_heads(name),
        rewriting=Rewriting.of_model(name),
        example_space=load_example_space(name),
    )


class UtteranceEncoder(BaseEncoder):
    """Encodes texts in their roles with any sentence-transformers model.

    Its kind follows from its heads, if it has any, or from the special tokens of its vocabulary:
    C3L, CCL with or without speaker tokens, or plain. Texts get the prefixes of that kind.

    Attributes:
        model: The sentence-transformers model.
        dimension: Length d of a vector.
        mixing: The length of the vectors that `encode_to_mix` returns.
    """

    heads: RoleHeads | None

    def __init__(
        self,
        name: str | Path | SentenceTransformer = DEFAULT_MODEL,
        *,
        device: str | None = None,
        precision: Precision = "float32",
        heads: RoleHeads | None = None,
        rewriting: Rewriting = AS_WRITTEN,
    ) -> None:
        """Load a model, or wrap a loaded one.

        Args:
            name: A folder, a hub name, or a loaded model.
            heads: The heads of a loaded model; a folder or hub name brings its own.
            rewriting: What rewrites the texts of a loaded model; a folder or hub name brings its
                own.
            device: A torch device; by default a GPU if there is one, else the CPU.
            precision: Precision of the transformer's arithmetic. Vectors are always float32.

        Raises:
            ModelError: The name leads to no model that can be loaded.
        """
        if isinstance(name, SentenceTransformer):
            parts = _Parts(name, "model", Card(Aggregation()), heads, rewriting)
        else:
            parts = _load_parts(name, device)
        self.model = parts.model
        vocabulary = self.model.tokenizer.get_vocab()
        super().__init__(
            parts.card,
            name=parts.name,
            kind=encoder_kind(vocabulary, parts.name, heads=parts.heads is not None),
            heads=parts.heads,
            rewriting=parts.rewriting,
            example_space=parts.example_space,
        )
        self._scripts = Scripts(vocabulary)
        self.mixing = parts.card.mixing
        self.dimension = dimension_of(self.model)
        self._forward: OnnxForward | TorchForward = TorchForward(self.model, precision)

    @classmethod
    def for_serving(
        cls,
        name: str | Path = DEFAULT_MODEL,
        *,
        device: str | None = None,
        cache: Path,
    ) -> Self:
        """Load a model for one small batch at a time: float16 on a GPU, ONNX Runtime on a CPU.

        Args:
            name: A folder or a hub name.
            device: As in the constructor.
            cache: Folder of exported models, by fingerprint; a model is exported once.

        Raises:
            ModelError: The name leads to no model that can be loaded.
        """
        encoder = cls(name, device=device)
        if encoder.model.device.type != "cpu":
            encoder._forward = TorchForward(encoder.model, "float16")
            return encoder
        probe = encoder.tokenize(candidate_inputs(PROBE))
        encoder._forward = (
            load_or_export(
                encoder.name,
                UnitVectors(encoder.model),
                cache / f"{encoder.fingerprint}-{VERSION}",
                pad=encoder.model.tokenizer.pad_token_id,
                probe=[probe],
                wanted=encoder.forward(probe),
            )
            or encoder._forward
        )
        return encoder

    @property
    def runtime(self) -> str:
        """The runtime, precision and device, such as "onnxruntime float32 on cpu"."""
        return self._forward.runtime

    @property
    def threads(self) -> int | None:
        """Threads that compute a batch on a CPU; None on a GPU."""
        return self._forward.threads if self.device == "cpu" else None

    @property
    def device(self) -> str:
        """The type of the device: "cpu", "cuda"."""
        return self.model.device.type

    @property
    def facts(self) -> EncoderFacts:
        """The facts in the card, for services that call the encoder in another process."""
        texts = [self.prefixed(item) for item in _STATED]
        vectors = self._encode(texts, self.forward)[:, :PROBED].astype(np.float64).round(5).tolist()
        probes = [Probe(text, vector) for text, vector in zip(texts, vectors, strict=True)]
        limit = cast("int", self.model.max_seq_length)
        return EncoderFacts(self.kind, self.dimension, self.fingerprint, probes, limit)

    def write_graph(self, folder: Path) -> None:
        """Write the model's graph into its folder; see `export_graph`. It must be on the CPU."""
        limit = cast("int", self.model.max_seq_length)
        export_graph(UnitVectors(self.model), folder, max_tokens=limit)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of weights, heads, space of examples, vocabulary, rewriting, pooling and kind.

        Vectors of equal fingerprints can be compared.
        """
        vocabulary = json.dumps(self.model.tokenizer.get_vocab(), sort_keys=True)
        heads = self.heads.state_dict(prefix="heads.") if self.heads else {}
        space = self.example_space._asdict() if self.example_space else {}
        arrays = {f"examples.{name}": torch.from_numpy(array) for name, array in space.items()}
        seed = self.kind + vocabulary + self.rewriting.to_text() + _settings(self.model)
        return digest(seed, {**self.model.state_dict(), **heads, **arrays})

    def encode(
        self,
        texts: Sequence[str],
        role: Role,
        relation: Relation | Sequence[Relation] | None = None,
    ) -> Float32:
        """Encode texts in one role; see `encode_in_roles`.

        Args:
            texts: n texts, without prefixes.
            role: The role of all of them.
            relation: The relation of their speakers to the target's: one for all texts, or one for
                each. Context roles of models with speaker tokens need it.

        Returns:
            (n, d) float32, unit rows.

        Raises:
            TypeError: `texts` is one text.
            ValueError: A relation is missing, or there are more or fewer than texts.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of texts, not one text")
        relations: Sequence[Relation | None] = (
            [relation] * len(texts)
            if relation is None or isinstance(relation, Relation)
            else list(relation)
        )
        items = [RoleText(text, role, r) for text, r in zip(texts, relations, strict=True)]
        return self.encode_in_roles(items)

    def encode_in_roles(self, items: Sequence[RoleText]) -> Float32:
        """Return (n, d) float32 unit rows of n texts, each in its own role.

        Each distinct text that the model reads is encoded once. A vector does not depend on the
        other texts, up to float tolerance.

        Raises:
            ValueError: A context role has no relation, but needs one.
        """
        return self.in_roles(self._encode(items, self.forward), items)

    def encode_to_mix(self, items: Sequence[RoleText]) -> Float32:
        """Return (n, d) float32 rows of n context utterances, to be mixed in pairs.

        They are unit rows, or with `mixing` "raw" rows as the pooling gives them, in float32. Heads
        return unit rows in either case.
        """
        if self.mixing == "unit" or self.heads:
            return self.encode_in_roles(items)

        def pool(tokens: list[list[int]]) -> Float32:
            with torch.inference_mode():
                vectors: Float32 = pooled(self.model, tokens).cpu().numpy()
            return vectors

        return self._encode(items, pool)

    def tokenize(self, items: Sequence[RoleText | str]) -> list[list[int]]:
        """Return each item's word pieces, cut to the model's limit; see `long_texts`.

        Args:
            items: Texts in roles, which get their prefix, or texts as the model reads them.
        """
        return tokenize(self.model, *self._read(items))

    def _read(self, items: Sequence[RoleText | str]) -> tuple[list[str], list[bool]]:
        """Return each text as the model reads it, and whether it keeps both ends."""
        texts = [item if isinstance(item, str) else self.prefixed(item) for item in items]
        return texts, [keeps_ends(item) for item in items]

    def is_too_long(self, item: RoleText) -> bool:
        """Return whether a text has more word pieces than the model reads."""
        text = self.prefixed(item)
        tokenizer = self.model.tokenizer
        limit = cast("int", self.model.max_seq_length)
        longest = len(text.encode())  # a word piece has at least one byte
        if longest + tokenizer.num_special_tokens_to_add() <= limit:
            return False
        with _TOKENIZING:
            return len(tokenizer(text, verbose=False)["input_ids"]) > limit

    def forward(self, tokens: list[list[int]]) -> Float32:
        """Encode n texts in word pieces as one padded batch, n ≥ 1; (n, d) unit rows."""
        return self._forward(tokens)

    def _encode(
        self, items: Sequence[RoleText | str], run: Callable[[list[list[int]]], Float32]
    ) -> Float32:
        """Return (n, d) rows that `run` computes, for each distinct text once.

        Args:
            items: n texts, as for `tokenize`.
            run: Returns the rows (b, d) of a padded batch of b texts in word pieces.
        """
        read = list(zip(*self._read(items), strict=True))
        distinct_texts = list(dict.fromkeys(read))
        texts = [text for text, _ in distinct_texts]
        keep_ends = [keeps for _, keeps in distinct_texts]
        pieces = [tuple(ids) for ids in tokenize(self.model, texts, keep_ends)]
        distinct = list(dict.fromkeys(pieces))  # long texts may have the same pieces after the cut
        vectors = np.empty((len(distinct), self.dimension), np.float32)
        for batch in batches([len(ids) for ids in distinct]):
            vectors[batch] = run([list(distinct[index]) for index in batch])
        row_of = {ids: row for row, ids in enumerate(distinct)}
        rows = {each: row_of[ids] for each, ids in zip(distinct_texts, pieces, strict=True)}
        return vectors[[rows[each] for each in read]]


class UnitVectors(torch.nn.Module):
    """A whole model, with pooling, as a function of two tensors, to be exported."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self._model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return (n, d) unit rows."""
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        vectors = self._model(features)["sentence_embedding"]
        return torch.nn.functional.normalize(vectors, dim=-1)


class TorchForward:
    """Runs one padded batch of an encoder in torch."""

    def __init__(self, model: SentenceTransformer, precision: Precision) -> None:
        """Wrap a model; `precision` is that of the transformer's arithmetic."""
        self._model = model
        self._dtype = getattr(torch, precision)
        self.runtime = f"torch {precision} on {model.device}"
        self.threads = torch.get_num_threads()

    def __call__(self, tokens: list[list[int]]) -> Float32:
        """Return (n, d) unit rows of n texts in word pieces, n ≥ 1."""
        with torch.inference_mode():
            vectors: Float32 = forward(self._model, tokens, self._dtype).cpu().numpy()
        return vectors


def load_sentence_transformer(name: str | Path, device: str | None = None) -> SentenceTransformer:
    """Load a sentence-transformers folder, a folder inside a Python package, or a hub name.

    `package:NAME/FOLDER` names a folder inside an installed package, for weights that come
    from a package registry.

    Raises:
        ModelError: The name leads to no model that can be loaded, the model has a default prompt,
            or its weights are not safetensors.
    """
    where = locate_model(name)
    check_weights(name, where)
    try:
        check_prompts(name, find_file(name, PROMPTS_FILE))
        options = {"dtype": torch.float32, "use_safetensors": True}
        model = SentenceTransformer(
            where,
            device=device,
            model_kwargs=options,
            # Otherwise it asks the hub for a model with the name of the folder.
            local_files_only=Path(where).is_dir() or not hub_answers(),
        )
        if downloaded := find_file(name, _MODULES_FILE):
            check_weights(name, downloaded.parent)
    except UNREADABLE as error:
        of_run = f" (a run's model is in '{name}/model')" if Path(where, "model").is_dir() else ""
        raise ModelError(
            f"model '{name}' {_describe_failure(where)}: {explain_unreadable(error)}{of_run}"
        ) from error
    if not hasattr(model[0], "auto_model"):
        raise ModelError(f"model '{name}' has no transformer")
    model.max_seq_length = model.max_seq_length or MAX_TOKENS
    return model.eval()


def check_model(name: str | Path) -> None:
    """Check that a name leads to a model, without loading it.

    Args:
        name: As for `load_sentence_transformer`.

    Raises:
        ModelError: There is no such folder, and no such model in the hub.
    """
    where = locate_model(name)
    check_place(name, where)
    if not Path(where).is_dir() and find_file(name, "config.json") is None:
        raise ModelError(f"model '{name}' {_describe_failure(where)}")


def _describe_failure(where: str) -> str:
    if Path(where).is_dir():
        return "cannot be loaded"
    if not hub_answers():
        return "is not a folder, and the hub cannot be reached"
    return "is neither a folder nor a model of the hub"


def load_heads(name: str | Path) -> RoleHeads | None:
    """Return the heads in a model's folder; None if it has none.

    Args:
        name: As for `load_sentence_transformer`.

    Raises:
        ModelError: The heads cannot be read.
    """
    try:
        file = find_file(name, HEADS_FILE)
    except (OSError, ValueError) as error:
        raise ModelError(f"model '{name}': cannot look for {HEADS_FILE}: {error}") from error
    return RoleHeads.load(file) if file else None


def dimension_of(model: SentenceTransformer) -> int:
    """Return the length d of the model's vectors, by encoding a text."""
    return forward(model, tokenize(model, ["a"])).shape[1]


def transformer_of(model: SentenceTransformer) -> PreTrainedModel:
    """Return the transformer inside a model."""
    return cast(PreTrainedModel, model[0].auto_model)


def tokenize(
    model: SentenceTransformer, texts: list[str], keep_ends: Sequence[bool] = ()
) -> list[list[int]]:
    """Return each text's word pieces, special tokens included, cut to the model's limit.

    Args:
        model: The model.
        texts: n texts.
        keep_ends: (n,) whether each text keeps its beginning and its end. Without it, all texts
            keep their beginning.
    """
    if not texts:
        return []
    limit = cast("int", model.max_seq_length)
    with _TOKENIZING:
        encoded = model.tokenizer(texts, truncation=True, max_length=limit)
        ids: list[list[int]] = encoded["input_ids"]
        for index, has_ends in enumerate(keep_ends):
            if has_ends and len(ids[index]) == limit:  # perhaps cut
                whole = model.tokenizer(texts[index], return_offsets_mapping=True, verbose=False)
                text = cut_middle(texts[index], whole["offset_mapping"], limit)
                ids[index] = model.tokenizer(text, truncation=True, max_length=limit)["input_ids"]
    return ids


def batches(lengths: Sequence[int], budget: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Group texts of like length into padded batches within a budget of tokens.

    Args:
        lengths: Word pieces of each text.
        budget: Tokens of a padded batch; a longer text makes a batch of its own.

    Yields:
        The indices in `lengths` of a batch's texts; each index once.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def encode_tokens(
    model: SentenceTransformer, tokens: list[list[int]], dtype: torch.dtype
) -> torch.Tensor:
    """Encode n ≥ 1 texts in word pieces, in batches of like length; (n, d) unit rows."""
    grouped = list(batches([len(ids) for ids in tokens]))
    vectors = torch.cat([forward(model, [tokens[i] for i in batch], dtype) for batch in grouped])
    order = torch.tensor([index for batch in grouped for index in batch], device=vectors.device)
    return vectors[torch.argsort(order)]


def forward(
    model: SentenceTransformer, tokens: list[list[int]], dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return the unit vectors of one padded batch; see `pooled`."""
    return torch.nn.functional.normalize(pooled(model, tokens, dtype), dim=-1)


def pooled(
    model: SentenceTransformer, tokens: list[list[int]], dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Run one padded batch through the transformer and its pooling.

    Args:
        model: The encoder.
        tokens: Word pieces of each of n ≥ 1 texts.
        dtype: Precision of the transformer's arithmetic; other than float32 by autocast.

    Returns:
        (n, d) float32 tensor on the model's device; unit rows only if the model normalises them.
    """
    features = {
        key: value.to(model.device)
        for key, value in model.tokenizer.pad({"input_ids": tokens}, return_tensors="pt").items()
    }
    with torch.autocast(model.device.type, dtype, enabled=dtype is not torch.float32):
        vectors: torch.Tensor = model(features)["sentence_embedding"]
    return vectors.float()


def default_device(device: str | None) -> str:
    """Return the device if it is given, else a GPU if there is one, else the CPU."""
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def _settings(model: SentenceTransformer) -> str:
    """Return the settings that change the vectors of the same weights, as JSON.

    They are named one by one: what a module prints differs among versions of
    sentence-transformers, and each version would have other fingerprints.
    """
    modules = [
        {
            "modules": [type(part).__name__ for part in (module, *module.children())],
            "pooling": getattr(module, "pooling_mode", None),
            "pools_prompt": getattr(module, "include_prompt", None),
        }
        for module in model
    ]
    return json.dumps([modules, model.max_seq_length])


def digest(seed: str, weights: Mapping[str, torch.Tensor]) -> str:
    """Return 16 hexadecimal digits of a SHA-256; equal seeds and weights give equal digits."""
    hashed = hashlib.sha256(seed.encode())
    for name, value in sorted(weights.items()):
        hashed.update(name.encode())
        hashed.update(value.to("cpu", torch.float32).numpy().tobytes())
    return hashed.hexdigest()[:16]
