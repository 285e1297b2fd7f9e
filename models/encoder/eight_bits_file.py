"""Matrices that a file of weights keeps in 8 bits, as integers with a scale for each row.

X.weight        int8 (n, k): the weights, times the smooth of their inputs, in units of the scale
X.weight.scale  float32 (n, 1): the scale of each row
X.smooth        float32 (k,): the scale of each input; only of a matrix that multiplies integers,
                which has X.step and X.zero as well (`eight_bits.py`)
"""

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32
from turnwise.models.encoder.eight_bits_graph import LARGEST_WEIGHT, Arrays, name_scale

_LEAST_SCALE = 1e-12


def store_in_8_bits(weights: Arrays, scales: Arrays, matrices: Collection[str]) -> Arrays:
    """Return the arrays of a file: some matrices in 8 bits, and all others in float16.

    Args:
        weights: Float32 arrays by name.
        scales: The scales of the matrices that multiply integers; see `SCALES_FILE`.
        matrices: Names of the matrices to store in 8 bits.
    """
    stored = dict(scales)
    for name, array in weights.items():
        if name not in matrices:
            stored[name] = array.astype(np.float16)
            continue
        scaled = array * scales.get(name_scale(name, "smooth"), np.float32(1))
        scale = np.maximum(np.abs(scaled).max(1, keepdims=True) / LARGEST_WEIGHT, _LEAST_SCALE)
        stored[name] = np.rint(scaled / scale).astype(np.int8)
        stored[_scale_of(name)] = scale.astype(np.float32)
    return stored


def restore(stored: Arrays) -> Arrays:
    """Return the float32 arrays of a file by the names that they had before `store_in_8_bits`."""
    return {
        name: _restore_matrix(name, stored) if _scale_of(name) in stored else _widen(array)
        for name, array in stored.items()
        if not name.endswith((".scale", ".smooth", ".step", ".zero"))
    }


def _restore_matrix(name: str, stored: Arrays) -> Float32:
    """Return the float32 (n, k) of a matrix in 8 bits; a graph computes the same to the bit."""
    factors = [_widen(stored[factor]) for factor in factors_of(name, stored)]
    matrix: Float32 = _widen(stored[name]) * factors[0]
    return matrix / factors[1] if len(factors) > 1 else matrix


def factors_of(name: str, stored: Collection[str]) -> list[str]:
    """Return the names of the scales of a matrix: the first multiplies it, the second divides it.

    An array that is not in 8 bits has none.
    """
    if _scale_of(name) not in stored:
        return []
    smooth = name_scale(name, "smooth")
    return [_scale_of(name), smooth] if smooth in stored else [_scale_of(name)]


def _scale_of(matrix: str) -> str:
    return f"{matrix}.scale"


def _widen(array: NDArray[Any]) -> Float32:
    return array.astype(np.float32)
