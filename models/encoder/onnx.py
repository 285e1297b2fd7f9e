"""Runs exported models in ONNX Runtime on a CPU, without torch, in half of the time of torch.

`export.py` writes the graphs. `OnnxForward` runs any of them; `OnnxEncoder` is a whole encoder
whose graph is in the model's folder.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from turnwise.models.arrays import Float32
from turnwise.models.card import TOLERANCE, TOLERANCE_OF_8_BITS, locate_model
from turnwise.models.cores import multiplies_bytes, usable_cores
from turnwise.models.encoder.stated import StatedEncoder
from turnwise.models.errors import ModelError
from turnwise.models.roles import RoleText

FILE = "model.onnx"
"""A model's graph."""
EIGHT_BITS_FILE = "model.8bit.onnx"
"""A model's graph for processors that are fast at products of 8 bits."""
MAX_TOKENS = "max_tokens"
"""Property of a graph in a model's folder: the word pieces of its longest text."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")

_PAD = 0
"""The word piece that pads a text of an `OnnxEncoder`. Any will do: the mask hides it."""
_FATAL_ONLY = 4
"""Errors are raised as well; as lines on standard error, they would break a log of JSON."""
_FEW = 2
"""Texts of a batch up to which threads spin."""

onnxruntime.set_default_logger_severity(_FATAL_ONLY)

Arrays = Mapping[str, NDArray[Any]]
Tokens = list[list[int]]
"""Word pieces of each text."""


class OnnxForward:
    """Runs one padded batch of an exported model, float32."""

    def __init__(
        self, file: Path, pad: int, *, spin: bool = True, shared: Arrays | None = None
    ) -> None:
        """Load what `export` or `export_graph` wrote.

        Args:
            file: The exported graph.
            pad: Word piece that pads shorter texts.
            spin: Whether the threads may spin for small batches.
            shared: Arrays that the graph reads and its folder lacks, by name; they are not copied.
        """
        # Threads that spin between operators save a fifth of the time for one or two texts, the
        # [B1] and [B2] of one turn; they must stop after the last operator, to leave the cores to
        # the rest of the service. With more texts the service is busy and needs the cores itself.
        self.threads = usable_cores()
        self._shared = shared or {}
        self._many = self._open(file, "session.intra_op.allow_spinning", "0")
        self._few = self._many
        if spin:
            self._few = self._open(file, "session.force_spinning_stop", "1")
        self._pad = pad
        precision = "8 bits" if file.name == EIGHT_BITS_FILE else "float32"
        self.runtime = f"onnxruntime {precision} on cpu"

    def _open(self, file: Path, option: str, value: str) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL_ONLY
        options.intra_op_num_threads = self.threads
        options.add_session_config_entry(option, value)
        arrays = map(onnxruntime.OrtValue.ortvalue_from_numpy, self._shared.values())
        options.add_external_initializers(list(self._shared), list(arrays))
        providers = ["CPUExecutionProvider"]
        return onnxruntime.InferenceSession(file, options, providers=providers)

    @property
    def properties(self) -> dict[str, str]:
        """The metadata of the exported file."""
        said: dict[str, str] = self._many.get_modelmeta().custom_metadata_map
        return said

    def __call__(self, tokens: Tokens, types: Tokens | None = None) -> Float32:
        """Return the model's rows for n ≥ 1 texts.

        Args:
            tokens: Their word pieces.
            types: The type of each word piece, for a model that was exported with types.
        """
        mask = _pad_rows([[1] * len(ids) for ids in tokens], 0)
        inputs = [_pad_rows(tokens, self._pad), mask]
        if types is not None:
            inputs.append(_pad_rows(types, 0))
        session = self._few if len(tokens) <= _FEW else self._many
        (rows,) = session.run(None, dict(zip(INPUTS, inputs, strict=False)))
        return cast(Float32, rows)


class OnnxEncoder(StatedEncoder):
    """Encodes texts on the CPU, from the files that `turnwise card` completes."""

    device = "cpu"

    def __init__(self, model: str | Path) -> None:
        """Load the graph, and compare what it computes with what the card states.

        Args:
            model: A folder with a graph and a card.

        Raises:
            ModelError: A file cannot be read, or the graph computes something else.
        """
        super().__init__(model)
        folder = Path(locate_model(model))
        in_8_bits = multiplies_bytes() and (folder / EIGHT_BITS_FILE).exists()
        file = folder / (EIGHT_BITS_FILE if in_8_bits else FILE)
        try:
            self._forward = OnnxForward(file, _PAD)
            self.load_tokenizer(int(self._forward.properties[MAX_TOKENS]))
            tokens = self.tokenize([probe.text for probe in self._facts.probes])
            # One by one: a batch would pad all of them to the longest.
            vectors = np.concatenate([self.forward([ids]) for ids in tokens])
        except Exception as error:  # both libraries raise plain exceptions
            raise ModelError(f"model '{model}': {file.name} cannot be used: {error}") from error
        tolerance = TOLERANCE_OF_8_BITS if in_8_bits else TOLERANCE
        if vectors.shape[1] != self.dimension or self._facts.differs(vectors, tolerance):
            raise ModelError(
                f"model '{model}': {file.name} computes something else than the card states; write "
                "both with `turnwise card`"
            )

    @property
    def runtime(self) -> str:
        """The runtime, precision and device, such as "onnxruntime float32 on cpu"."""
        return self._forward.runtime

    @property
    def threads(self) -> int:
        """Threads that compute a batch."""
        return self._forward.threads

    def tokenize(self, items: Sequence[RoleText | str]) -> Tokens:
        """Return each item's word pieces, cut to the model's limit; see `long_texts`.

        Args:
            items: Texts in roles, which get their prefix, or texts as the model reads them.
        """
        return [read.pieces for read in self.read(items)]

    def forward(self, tokens: Tokens) -> Float32:
        """Encode n texts in word pieces as one padded batch, n ≥ 1; (n, d) unit rows."""
        return self._forward(tokens)


def has_graph(model: str | Path) -> bool:
    """Return whether a model is a folder with a graph."""
    return Path(locate_model(model), FILE).is_file()


def _pad_rows(rows: Tokens, pad: int) -> NDArray[np.int64]:
    padded = np.full((len(rows), max(map(len, rows))), pad, np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded
