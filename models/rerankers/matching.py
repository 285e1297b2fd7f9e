"""From similarity matrices to a matching vector."""

import torch
from torch import Tensor, nn
from torch.nn import functional

FILTERS = (32, 16)
"""Output channels of the two convolutions."""
WINDOW = 3
"""Side of convolutions and of pools, which do not overlap."""


class Matching(nn.Module):
    """Similarity matrices to a matching vector, by two convolutions with max pooling."""

    def __init__(self, matrices: int, words: int, dimension: int, dropout: float) -> None:
        """Make a network.

        Args:
            matrices: Number of similarity matrices.
            words: Words of the longest text, hence the side of a matrix.
            dimension: Length of the vector.
            dropout: Share of features that are zeroed in training.
        """
        super().__init__()
        first, second = FILTERS
        self.first = nn.Conv2d(matrices, first, WINDOW, padding="same")
        self.second = nn.Conv2d(first, second, WINDOW, padding="same")
        side = pooled(pooled(words))
        self.dense = nn.Linear(second * side * side, dimension)
        self.dropout = nn.Dropout(dropout)
        self.words = words

    def forward(self, matrices: Tensor) -> Tensor:
        """Return (P, d) for (P, M, n, m) matrices."""
        flat = self.dropout(self.features(matrices).flatten(1))
        return torch.tanh(self.dense(flat))

    def features(self, matrices: Tensor) -> Tensor:
        """Return what convolutions and pools make of matrices continued by zeros.

        Where the zeros are out of sight of a matrix, all look alike: they are worked out once
        for all pairs, and each pair's own corner is laid over them. A matrix of 12 by 12 words
        costs a sixth so.
        """
        seen = max(in_sight(side) for side in matrices.shape[-2:])
        corner = WINDOW**2 * seen + WINDOW
        if corner >= self.words:
            return self._convolve(continued(matrices, self.words))
        empty = matrices.new_zeros(1, matrices.shape[1], self.words, self.words)
        alike = self._convolve(empty).expand(len(matrices), -1, -1, -1).clone()
        own = self._convolve(continued(matrices, corner))[..., :seen, :seen]
        alike[..., :seen, :seen] = own
        return alike

    def _convolve(self, matrices: Tensor) -> Tensor:
        hidden = matrices.contiguous(memory_format=torch.channels_last)  # a quarter faster
        for convolution in (self.first, self.second):
            # Pooled first: the same, with a ninth of the values to rectify.
            hidden = functional.max_pool2d(convolution(hidden), WINDOW, ceil_mode=True).relu()
        return hidden


def pooled(side: int) -> int:
    """Return the side of a matrix after a pool that covers all of it."""
    return -(-side // WINDOW)


def in_sight(side: int) -> int:
    """Return how many of the last cells a text of so many words can have an influence on."""
    return (side // WINDOW + 1) // WINDOW + 1


def continued(matrices: Tensor, side: int) -> Tensor:
    """Continue matrices by zeros to a square, or cut off what is zero anyway."""
    height, width = matrices.shape[-2:]
    return functional.pad(matrices, (0, side - width, 0, side - height))
