"""Role heads in torch, to be trained; `head_arrays.py` says what they are."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from turnwise.models.arrays import Float32
from turnwise.models.head_arrays import CONTEXT_ROLES, HEADS_FILE, WIDENING, HeadArrays
from turnwise.models.roles import RoleText

RIDGE = 0.2
"""Penalty of W's ridge regression, relative to the mean variance of the vectors."""


class RoleHeads(nn.Module):
    """The heads of the four context roles, over vectors of length d.

    A new head returns the vector itself: W is the identity and V is zero. With a teacher,
    `start_from` sets W.
    """

    def __init__(self, dimension: int) -> None:
        """Make new heads for vectors (d,)."""
        super().__init__()
        n, hidden = len(CONTEXT_ROLES), WIDENING * dimension
        self.linear = nn.Parameter(torch.eye(dimension).repeat(n, 1, 1))
        self.up = nn.Parameter(torch.randn(n, dimension, hidden) / dimension**0.5)
        self.down = nn.Parameter(torch.zeros(n, hidden, dimension))

    def start_from(self, after: Tensor, taught: Tensor) -> None:
        """Set each W to the ridge regression from n texts' vectors to a teacher's; V stays zero.

        Args:
            after: (n, d) unit vectors of the texts.
            taught: (4, n, d) unit vectors that the teacher has for them in each context role.
        """
        n, d = after.shape
        ridge = RIDGE * n / d * torch.eye(d, device=after.device)
        solved = torch.linalg.solve(after.T @ after + ridge, after.T @ taught)
        self.linear.data.copy_(solved)  # safetensors cannot save the order that `solve` returns

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read heads.

        Raises:
            ModelError: The file cannot be read, or holds something else.
        """
        arrays = HeadArrays.load(file)
        heads = cls(arrays.linear.shape[-1])
        heads.load_state_dict({k: torch.from_numpy(v) for k, v in arrays._asdict().items()})
        return heads.eval()

    def save(self, folder: Path) -> None:
        """Write the heads into a model's folder, in float16."""
        weights = {name: value.detach().half().cpu() for name, value in self.state_dict().items()}
        save_file(weights, folder / HEADS_FILE)

    def forward(self, after: Tensor) -> Tensor:
        """Return (4, n, d) unit vectors of n texts in each context role, from (n, d) of [AFTER]."""
        hidden = functional.gelu(after @ self.up, approximate="tanh")
        return functional.normalize(after @ self.linear + hidden @ self.down, dim=-1)

    def in_roles(self, after: Float32, items: Sequence[RoleText]) -> Float32:
        """Return (n, d) unit rows: each text's vector in its role; see `HeadArrays.in_roles`."""
        parts = (part.detach().cpu().numpy() for part in (self.linear, self.up, self.down))
        return HeadArrays(*cast("Iterator[Float32]", parts)).in_roles(after, items)
