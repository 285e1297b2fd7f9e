"""An encoder in ONNX Runtime whose graph stands in the model's folder: it needs no torch."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from turnwise.models.arrays import Float32
from turnwise.models.card import StatedEncoder, located
from turnwise.models.errors import ModelError
from turnwise.models.onnx import FILE, MAX_TOKENS, OnnxForward, Tokens
from turnwise.models.roles import RoleText

TOKENIZER = "tokenizer.json"
_PAD = 0
"""Any word piece will do: the mask hides it."""


class OnnxEncoder(StatedEncoder):
    """Encodes texts on the CPU, from the files that `turnwise card` completes."""

    device = "cpu"
    runtime = OnnxForward.runtime

    def __init__(self, model: str | Path) -> None:
        """Load the graph, and compare what it computes with what the card states.

        Args:
            model: A folder with a graph and a card.

        Raises:
            ModelError: A file cannot be read, or the graph computes something else.
        """
        super().__init__(model)
        folder = Path(located(model))
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
            self._forward = OnnxForward(folder, _PAD)
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(int(self._forward.properties[MAX_TOKENS]))
            tokens = self.tokenize([probe.text for probe in self._facts.probes])
            # One by one: a batch would pad all of them to the longest.
            vectors = np.concatenate([self.forward([ids]) for ids in tokens])
        except Exception as error:  # that is what both libraries raise
            raise ModelError(f"model '{model}': {FILE} cannot be used: {error}") from error
        if vectors.shape[1] != self.dimension or self._facts.differs(vectors):
            raise ModelError(
                f"model '{model}': {FILE} computes something else than the card states; write both "
                "with `turnwise card`"
            )

    @property
    def threads(self) -> int:
        """Threads that compute a batch."""
        return self._forward.threads

    def tokenize(self, items: Sequence[RoleText | str]) -> Tokens:
        """Return each item's word pieces, truncated at the model's limit.

        Args:
            items: Texts in roles, which get their prefix, or texts as the model reads them.
        """
        read = [item if isinstance(item, str) else self.prefixed(item) for item in items]
        return [encoded.ids for encoded in self._tokenizer.encode_batch_fast(read)]

    def forward(self, tokens: Tokens) -> Float32:
        """Encode n texts in word pieces as one padded batch, n ≥ 1; (n, d) unit rows."""
        return self._forward(tokens)


def has_graph(model: str | Path) -> bool:
    """Return whether a model is a folder with a graph."""
    return Path(located(model), FILE).is_file()
