"""Role heads: the context vectors of an utterance, computed from its one encoded vector.

An encoder with heads reads a text once, without a prefix. That vector is the text's [AFTER]. The
context roles ([B1], [B2], each said by the same or by another speaker) are small networks over it:
normalize(W a + V gelu(U a)). A turn thus costs one pass of the encoder, and a session keeps one
vector for an utterance, from which every role follows.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from turnwise.models.arrays import Float32
from turnwise.models.errors import ModelError
from turnwise.models.roles import Relation, Role, RoleText

HEADS_FILE = "heads.safetensors"
"""Stands beside a model's weights. Without it, the folder is a plain sentence encoder."""

CONTEXT_ROLES = tuple((role, of) for role in (Role.FIRST, Role.SECOND) for of in Relation)
"""The role and the relation of each head, in the order of the heads."""
_WIDENING = 2
"""Hidden units of a head for each number of a vector."""
_GELU_SCALE = (2 / np.pi) ** 0.5


class RoleHeads(nn.Module):
    """The heads of the four context roles, over vectors of length d.

    A new head returns the vector itself: W is the identity and V is zero.
    """

    def __init__(self, dimension: int) -> None:
        """Make new heads for vectors (d,)."""
        super().__init__()
        n, hidden = len(CONTEXT_ROLES), _WIDENING * dimension
        self.linear = nn.Parameter(torch.eye(dimension).repeat(n, 1, 1))
        self.up = nn.Parameter(torch.randn(n, dimension, hidden) / dimension**0.5)
        self.down = nn.Parameter(torch.zeros(n, hidden, dimension))

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read heads.

        Raises:
            ModelError: The file cannot be read, or holds something else.
        """
        try:
            weights = load_file(file)
            heads = cls(weights["linear"].shape[-1])
            heads.load_state_dict({name: value.float() for name, value in weights.items()})
        except (OSError, SafetensorError, RuntimeError, KeyError, IndexError) as error:
            raise ModelError(f"'{file}' holds no heads of roles: {error}") from error
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
        """Return (n, d) unit rows: each text's vector in its role.

        Args:
            after: (n, d) unit rows, [AFTER] of the texts.
            items: The n texts. Their roles and relations count.

        Raises:
            ValueError: A context role has no relation.
        """
        vectors = after.copy()
        places: dict[tuple[Role, Relation | None], list[int]] = {}
        for place, item in enumerate(items):
            if item.role is not Role.AFTER:
                places.setdefault((item.role, item.relation), []).append(place)
        for role, of_role in places.items():
            vectors[of_role] = self._one(head_of(*role), after[of_role])
        return vectors

    def _one(self, head: int, after: Float32) -> Float32:
        # In numpy: torch would start threads of its own in every thread that calls it.
        linear, up, down = (
            cast(Float32, weights.detach().cpu().numpy()[head])
            for weights in (self.linear, self.up, self.down)
        )
        hidden = after @ up
        hidden *= 0.5 + 0.5 * np.tanh(_GELU_SCALE * (hidden + 0.044715 * hidden * hidden * hidden))
        mixed = after @ linear + hidden @ down
        unit: Float32 = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
        return unit


def head_of(role: Role, relation: Relation | None) -> int:
    """Return the place of a context role's head.

    Raises:
        ValueError: It has no relation.
    """
    if relation is None:
        raise ValueError(f"role '{role}' of an encoder with heads needs a relation to the target")
    return CONTEXT_ROLES.index((role, relation))
