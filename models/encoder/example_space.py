"""The space in which a message is compared with examples.

An encoder learns vectors that point to the replies that fit, not to utterances that mean the same.
The few axes along which utterances vary most decide their cosines among each other. Whitening (Su
et al., 2021) shortens these axes, and puts the mean at the origin. The encoder stays as it is.
"""

from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from safetensors.numpy import save

from turnwise.models.arrays import Float32
from turnwise.models.card import find_file
from turnwise.models.errors import ModelError
from turnwise.models.model_files import load_arrays

EXAMPLES_FILE = "examples.safetensors"
"""The file of the space in a model's folder. Without it, examples are compared as utterances."""


class ExampleSpace(NamedTuple):
    """An affine map of utterances, normalize((v - mean) W).

    Attributes:
        mean: (d,) float32.
        linear: W, (d, d) float32.
    """

    mean: Float32
    linear: Float32

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read a space.

        Raises:
            ModelError: The file cannot be read, or holds something else.
        """
        space = cls(*load_arrays(file, cls._fields, "space of examples"))
        if space.linear.shape != (len(space.mean),) * 2:
            raise ModelError(f"'{file}' holds no space of examples: its shapes do not fit")
        return space

    def save(self, folder: Path) -> None:
        """Write the space into a model's folder, in float16."""
        arrays = {name: array.astype(np.float16) for name, array in self._asdict().items()}
        # `save_file` would give other users, such as that of a container, no access.
        (folder / EXAMPLES_FILE).write_bytes(save(arrays))

    def place(self, said: Float32) -> Float32:
        """Return (n, d) unit rows, the places of utterances in the space.

        Args:
            said: (n, d) unit rows, utterances in the role `SAID`.
        """
        placed = (said - self.mean) @ self.linear
        unit: Float32 = placed / np.linalg.norm(placed, axis=1, keepdims=True)
        return unit


def load_example_space(model: str | Path) -> ExampleSpace | None:
    """Return the space in a model's folder; None if it has none.

    Args:
        model: A folder or a hub name.

    Raises:
        ModelError: It cannot be looked for, or cannot be read.
    """
    try:
        file = find_file(model, EXAMPLES_FILE)
    except (OSError, ValueError) as error:
        raise ModelError(f"model '{model}': cannot look for {EXAMPLES_FILE}: {error}") from error
    return ExampleSpace.load(file) if file else None
