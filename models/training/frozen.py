"""An encoder that does not learn, in a run whose heads do."""

from collections.abc import Callable

import torch
from torch import Tensor

Encode = Callable[[list[list[int]]], Tensor]
"""Returns the vectors (n, d) of n texts in word pieces."""


class FrozenEncoder:
    """An encoder whose weights stay as they are: it reads each text once.

    It keeps some 1.5 kB of memory for each text.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._known: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, tokens: list[list[int]]) -> Tensor:
        """Return the vectors (n, d) of n ≥ 1 texts in word pieces; they have no gradient."""
        texts = [tuple(ids) for ids in tokens]
        unknown = [text for text in dict.fromkeys(texts) if text not in self._known]
        if unknown:
            with torch.no_grad():
                vectors = self._encode([list(text) for text in unknown])
            self._known |= zip(unknown, vectors, strict=True)
        return torch.stack([self._known[text] for text in texts])
