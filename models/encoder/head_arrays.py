"""The heads of a model as numpy arrays, as a service applies them; `heads.py` trains them.

An encoder with heads reads a text in one of two roles (`roles.read_as`). The heads compute other
roles from that vector, v: each is a small network, normalize(W v + V gelu(U v)). A turn therefore
costs one pass of the encoder, and a session keeps one vector for an utterance.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.errors import ModelError
from turnwise.models.model_files import load_arrays
from turnwise.models.roles import Relation, Role, RoleText, read_as

HEADS_FILE = "heads.safetensors"
"""The file of the heads in a model's folder. Without it, the model is a triple encoder."""

HEADS = (
    (Role.FIRST, Relation.SAME),
    (Role.FIRST, Relation.OTHER),
    (Role.SECOND, Relation.SAME),
    (Role.SUPPOSED, Relation.SAME),
    (Role.SUPPOSED, Relation.OTHER),
    (Role.SECOND, Relation.OTHER),
)
"""The role and the relation of each head, in the order of the heads."""
_FEWEST = 5
"""Heads of an older model: it lacks the last one, whose role has the vector as it is read."""
WIDENING = 2
"""Hidden units of a head for each number of a vector."""
_GELU_SCALE = (2 / np.pi) ** 0.5


class HeadArrays(NamedTuple):
    """The k heads over vectors of length d, with h = 2 d hidden units; older models have 5, not 6.

    Attributes:
        linear: W of each head, (k, d, d) float32.
        up: U, (k, d, h).
        down: V, (k, h, d).
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
        heads = cls(*load_arrays(file, cls._fields, "heads of roles"))
        k, d = heads.linear.shape[:2] if heads.linear.ndim > 1 else (0, 0)
        h = WIDENING * d
        fits = [array.shape for array in heads] == [(k, d, d), (k, d, h), (k, h, d)]
        if not (fits and _FEWEST <= k <= len(HEADS)):
            raise ModelError(f"'{file}' holds no heads of roles: their shapes do not fit")
        return heads

    def in_roles(self, read: Float32, items: Sequence[RoleText]) -> Float32:
        """Return (n, d) unit rows: each text's vector in its role.

        Args:
            read: (n, d) unit rows, the vectors of the texts as the encoder reads them.
            items: The n texts. Their roles and relations count.

        Raises:
            ValueError: A role that needs a relation has none.
        """
        vectors = read.copy()
        for head, indices in group_by_head(items):
            if head < len(self.linear):
                vectors[indices] = self._compute(head, read[indices])
        return vectors

    def _compute(self, head: int, read: Float32) -> Float32:
        # In numpy: torch would start threads of its own in every thread that calls it.
        hidden = read @ self.up[head]
        hidden *= 0.5 + 0.5 * np.tanh(_GELU_SCALE * (hidden + 0.044715 * hidden * hidden * hidden))
        mixed = read @ self.linear[head] + hidden @ self.down[head]
        unit: Float32 = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
        return unit


def needs_head(item: RoleText) -> bool:
    """Return whether a head computes the vector of an item, which is read in another role."""
    return item.role is not read_as(item).role


def group_by_head(items: Sequence[RoleText]) -> Iterator[tuple[int, list[int]]]:
    """Yield the number of each head that items need, and the indices of those items.

    Raises:
        ValueError: A role that needs a relation has none.
    """
    indices: dict[tuple[Role, Relation | None], list[int]] = {}
    for index, item in enumerate(items):
        indices.setdefault((item.role, item.relation), []).append(index)
    for (role, relation), of_role in indices.items():
        if not needs_head(RoleText("", role, relation)):
            continue
        if relation is None:
            what = "of an encoder with heads needs a relation to the target"
            raise ValueError(f"role '{role}' {what}")
        yield HEADS.index((role, relation)), of_role
