"""Digests that are equal where models are."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def digest(seed: str, weights: Mapping[str, Tensor]) -> str:
    """Return 16 hexadecimal digits, equal where seed and weights are."""
    hashed = hashlib.sha256(seed.encode())
    for name, value in sorted(weights.items()):
        hashed.update(name.encode())
        hashed.update(value.to("cpu", torch.float32).numpy().tobytes())
    return hashed.hexdigest()[:16]
