"""Role heads in torch, to be trained; `head_arrays.py` says what they are."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from turnwise.models.arrays import Float32
from turnwise.models.encoder.head_arrays import (
    HEADS,
    HEADS_FILE,
    WIDENING,
    HeadArrays,
    group_by_head,
)
from turnwise.models.roles import RoleText

RIDGE = 0.02
"""Penalty of W's ridge regression, relative to the mean variance of the vectors."""
FIT_STEPS = 1500
"""Steps of the fit to a teacher."""
FIT_TEXTS = 512
"""Texts of a step."""


class RoleHeads(nn.Module):
    """The heads over vectors of length d.

    A new head returns the vector itself: W is the identity and V is zero. `fit_to_teacher` fits the
    heads to a teacher.
    """

    def __init__(self, dimension: int, k: int = len(HEADS)) -> None:
        """Make k new heads for vectors (d,)."""
        super().__init__()
        hidden = WIDENING * dimension
        self.linear = nn.Parameter(torch.eye(dimension).repeat(k, 1, 1))
        self.up = nn.Parameter(torch.randn(k, dimension, hidden) / dimension**0.5)
        self.down = nn.Parameter(torch.zeros(k, hidden, dimension))

    def start_from(self, others: "RoleHeads") -> None:
        """Take the weights of others, which may be the first of these."""
        for weights, theirs in zip(self.parameters(), others.parameters(), strict=True):
            weights.data[: len(theirs)] = theirs.data

    def fit_to_teacher(self, read: Tensor, taught: Tensor) -> None:
        """Fit the heads to a teacher's vectors of n texts, without the encoder.

        W starts from the ridge regression. Adam then lowers the mean cosine distance.

        Args:
            read: (6, n, d) unit vectors of the texts, as the encoder reads them for each head.
            taught: (6, n, d) unit vectors that the teacher has for them in the role of each head.
        """
        _, n, d = read.shape
        ridge = RIDGE * n / d * torch.eye(d, device=read.device)
        solved = torch.linalg.solve(read.mT @ read + ridge, read.mT @ taught)
        self.linear.data.copy_(solved)  # safetensors cannot save the order that `solve` returns
        optimiser = torch.optim.AdamW(self.parameters(), weight_decay=0.05)
        schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, FIT_STEPS)
        for _ in range(FIT_STEPS):
            drawn = torch.randint(n, (min(n, FIT_TEXTS),), device=read.device)
            ours = self._compute(read[:, drawn], slice(None))
            distance = 1 - (ours * taught[:, drawn]).sum(-1).mean(1)
            optimiser.zero_grad()
            distance.sum().backward()
            optimiser.step()
            schedule.step()

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read heads.

        Raises:
            ModelError: The file cannot be read, or holds something else.
        """
        arrays = HeadArrays.load(file)
        k, d, _ = arrays.linear.shape
        heads = cls(d, k)
        heads.load_state_dict({k: torch.from_numpy(v) for k, v in arrays._asdict().items()})
        return heads.eval()

    def save(self, folder: Path) -> None:
        """Write the heads into a model's folder, in float16."""
        weights = {name: value.detach().half().cpu() for name, value in self.state_dict().items()}
        save_file(weights, folder / HEADS_FILE)

    def forward(self, read: Tensor, items: Sequence[RoleText]) -> Tensor:
        """Return (n, d) unit rows in the roles of the items, as `HeadArrays.in_roles` does."""
        vectors = read.clone()
        for head, indices in group_by_head(items):
            if head < len(self.linear):
                vectors[indices] = self._compute(read[indices], head)
        return vectors

    def in_roles(self, read: Float32, items: Sequence[RoleText]) -> Float32:
        """Return (n, d) unit rows: each text's vector in its role; see `HeadArrays.in_roles`."""
        parts = (part.detach().cpu().numpy() for part in (self.linear, self.up, self.down))
        return HeadArrays(*cast("Iterator[Float32]", parts)).in_roles(read, items)

    def _compute(self, read: Tensor, heads: int | slice) -> Tensor:
        """Return what one head makes of (n, d) vectors, or all heads of (6, n, d)."""
        hidden = functional.gelu(read @ self.up[heads], approximate="tanh")
        return functional.normalize(read @ self.linear[heads] + hidden @ self.down[heads], dim=-1)
