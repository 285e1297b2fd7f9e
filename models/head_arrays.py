"""The heads of a model as numpy arrays, as a service applies them; `heads.py` trains them.

An encoder with heads reads a text once, without a prefix. That vector is the text's [AFTER]. The
context roles ([B1], [B2], each said by the same or by another speaker) are small networks over it:
normalize(W a + V gelu(U a)). A turn thus costs one pass of the encoder, and a session keeps one
vector for an utterance, from which every role follows.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from turnwise.models.arrays import Float32
from turnwise.models.errors import ModelError
from turnwise.models.roles import Relation, Role, RoleText

HEADS_FILE = "heads.safetensors"
"""Stands beside a model's weights. Without it, the folder is a plain sentence encoder."""

CONTEXT_ROLES = tuple((role, of) for role in (Role.FIRST, Role.SECOND) for of in Relation)
"""The role and the relation of each head, in the order of the heads."""
WIDENING = 2
"""Hidden units of a head for each number of a vector."""
_GELU_SCALE = (2 / np.pi) ** 0.5


class HeadArrays(NamedTuple):
    """The heads of the four context roles, over vectors of length d, with h = 2 d hidden units.

    Attributes:
        linear: W of each head, (4, d, d) float32.
        up: U, (4, d, h).
        down: V, (4, h, d).
    """

    linear: Float32
    up: Float32
    down: Float32

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read heads.

        Raises:
            ModelError: The file cannot be read, or holds something else.
        """
        try:
            weights = load_file(file)
            heads = cls(*(weights[name].astype(np.float32) for name in cls._fields))
        except (OSError, SafetensorError, KeyError) as error:
            raise ModelError(f"'{file}' holds no heads of roles: {error}") from error
        d = heads.linear.shape[-1] if heads.linear.ndim else 0
        n, h = len(CONTEXT_ROLES), WIDENING * d
        if [array.shape for array in heads] != [(n, d, d), (n, d, h), (n, h, d)]:
            raise ModelError(f"'{file}' holds no heads of roles: their shapes do not fit")
        return heads

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
        hidden = after @ self.up[head]
        hidden *= 0.5 + 0.5 * np.tanh(_GELU_SCALE * (hidden + 0.044715 * hidden * hidden * hidden))
        mixed = after @ self.linear[head] + hidden @ self.down[head]
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
