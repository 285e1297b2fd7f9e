"""A model's own re-ranker: a small cross-encoder in its folder, which runs without torch.

reranker/config.json        its architecture, `Facts`, and the cascade (`cascade.py`)
reranker/model.safetensors  its weights, most of them in 8 bits (`encoder/eight_bits_file.py`)
reranker/model.onnx         its graph, and model.8bit.onnx (`encoder/export.py`)

It reads a text with the tokenizer and the word vectors of the model itself. `pack.py` writes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter
from safetensors import safe_open
from tokenizers import Tokenizer

from turnwise.models.arrays import Float32
from turnwise.models.card import OWN_RERANKER, locate_model, model_name
from turnwise.models.cores import multiplies_bytes
from turnwise.models.encoder.onnx import EIGHT_BITS_FILE, FILE, OnnxForward
from turnwise.models.encoder.stated import TOKENIZER
from turnwise.models.errors import ModelError
from turnwise.models.model_files import check_weights
from turnwise.models.rerankers.cascade import CONFIG
from turnwise.models.rerankers.pairs import SPEAKERS, Pair, PairReranker, PairTokens, cut_pair

WEIGHTS = "model.safetensors"
WORD_VECTORS = "embeddings.word_embeddings.weight"
"""The name of the word vectors in the model's file of weights."""

_PAD = 0
"""The word piece that pads a pair. Any will do: the mask hides it."""
_TOLERANCE = 0.01
"""Greatest difference of the probe's logit."""
_TOLERANCE_OF_8_BITS = 0.5


@dataclass(frozen=True, slots=True)
class Facts:
    """Fields of `config.json`.

    Attributes:
        max_tokens: Word pieces of the longest pair.
        probe: A pair.
        logit: The pair's logit, which would differ with the word vectors of another model.
    """

    max_tokens: int
    probe: Pair
    logit: float


class OwnReranker(PairReranker):
    """Scores pairs on the CPU, from the files in a model's folder."""

    def __init__(self, model: str | Path) -> None:
        """Load the graph, and compare what it computes with what its configuration states.

        Args:
            model: A folder with a re-ranker.

        Raises:
            ModelError: A file cannot be read, or the graph computes something else.
        """
        whole = Path(locate_model(model))
        folder = whole / OWN_RERANKER
        check_weights(model, whole)
        in_8_bits = multiplies_bytes() and (folder / EIGHT_BITS_FILE).exists()
        file = folder / (EIGHT_BITS_FILE if in_8_bits else FILE)
        self.name = model_name(model)
        try:
            self._tokenizer = Tokenizer.from_file(str(whole / TOKENIZER))
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
            with safe_open(whole / WEIGHTS, "np") as weights:
                shared = {WORD_VECTORS: weights.get_tensor(WORD_VECTORS)}
            # Many pairs wait at once, and the service needs the cores: no thread spins.
            self._forward = OnnxForward(file, _PAD, spin=False, shared=shared)
            facts = read_facts(folder)
            self._limit = facts.max_tokens
            vocabulary = self._tokenizer.get_vocab()
            super().__init__(marked=all(token in vocabulary for token in SPEAKERS))
            difference = abs(float(self.forward(self.tokenize([facts.probe]))[0, 0]) - facts.logit)
        except Exception as error:  # the libraries raise plain exceptions
            what = f"{OWN_RERANKER}/{file.name} cannot be used: {error}"
            raise ModelError(f"model '{model}': {what}") from error
        tolerance = _TOLERANCE_OF_8_BITS if in_8_bits else _TOLERANCE
        if not difference <= tolerance:
            raise ModelError(
                f"model '{model}': {OWN_RERANKER}/{file.name} computes something else than its "
                f"{CONFIG} states: it is the re-ranker of another model, or damaged"
            )

    @property
    def runtime(self) -> str:
        """The runtime, precision and device, such as "onnxruntime float32 on cpu"."""
        return self._forward.runtime

    def tokenize(self, pairs: Sequence[Pair]) -> list[PairTokens]:
        """Return each pair's word pieces, at most as many as the model reads; see `cut_pair`."""
        encoded = self._tokenizer.encode_batch(list(pairs))
        return [cut_pair(each, self._limit) for each in encoded]

    def forward(self, tokens: list[PairTokens]) -> Float32:
        """Return the logits (n, 1) of n pairs, as one padded batch."""
        return self._forward([pair.ids for pair in tokens], [pair.types for pair in tokens])


def read_facts(folder: Path) -> Facts:
    """Return the facts in the configuration of a re-ranker.

    Raises:
        OSError: The file cannot be read.
        ValueError: It lacks one of them.
    """
    return TypeAdapter(Facts).validate_json((folder / CONFIG).read_bytes(), extra="ignore")
