"""Simulates products of 8 bits in torch, so that a transformer learns to withstand them.

Most matrices of the transformer's layers then multiply integers. Their inputs x become
`round(x / (s · step)) + zero`, unsigned. Their weights, times s, become signed ones, with a step
for each of n outputs. The scale s of each of k channels is its largest input: SmoothQuant (Xiao et
al., 2023) with a migration strength of 1. The scales of the inputs are fixed, so that a vector does
not depend on the other texts of its batch.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from turnwise.models.encoder.eight_bits_graph import LARGEST_INPUT, LARGEST_WEIGHT, SCALES_FILE

_SCALES = ("smooth", "step", "zero")
"""What a matrix of 8 bits has besides its weights, as `EightBitLinear.convert` takes it."""
_CLIPPED = 1e-5
"""Share of the inputs beyond each end of the range of 8 bits."""
_LEAST = 1e-2
"""Lower limit for the largest input of a channel, which scales the channel."""


class EightBitLinear(nn.Linear):
    """A matrix that rounds its inputs and weights to 8 bits; the gradient passes through."""

    smooth: Tensor
    step: Tensor
    zero: Tensor

    @classmethod
    def convert(cls, linear: nn.Linear, smooth: Tensor, step: Tensor, zero: Tensor) -> None:
        """Turn a matrix into one of 8 bits, without a copy.

        Args:
            linear: The matrix; its parameters stay the same.
            smooth: (k,) float32, the scale s of each input.
            step: () float32, the step of the scaled inputs.
            zero: () int32, the integer that 0 becomes.
        """
        linear.__class__ = cls
        for name, value in zip(_SCALES, (smooth, step, zero), strict=True):
            linear.register_buffer(name, value, persistent=False)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name in torch
        """Return (…, n) from (…, k)."""
        rounded = torch.fake_quantize_per_tensor_affine(
            input / self.smooth, self.step, self.zero, 0, LARGEST_INPUT
        )
        return functional.linear(rounded, self._round_weights(), self.bias)

    def _round_weights(self) -> Tensor:
        """Return the rounded weights for scaled inputs, (n, k)."""
        scaled = self.weight * self.smooth
        steps = scaled.detach().abs().amax(1) / LARGEST_WEIGHT
        zeros = torch.zeros_like(steps, dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(
            scaled, steps, zeros, 0, -LARGEST_WEIGHT, LARGEST_WEIGHT
        )

    @torch.no_grad()
    def round_weights(self) -> None:
        """Give the weights the values that they have in 8 bits, so that float32 computes alike."""
        self.weight.copy_(self._round_weights() / self.smooth)


def simulate(network: nn.Module, run: Callable[[], object]) -> None:
    """Let a transformer compute in 8 bits; one that already does gets new scales.

    Args:
        network: The transformer.
        run: Runs it on some hundreds of texts without padding; the scales come from its inputs.
    """
    linears = dict(matrices(network))
    for name, inputs in _record_inputs(linears, run).items():
        smooth = inputs.abs().amax(0).clamp_min(_LEAST)
        scaled = (inputs / smooth).flatten()
        beyond = 1 + int(_CLIPPED * len(scaled))
        low = scaled.kthvalue(beyond).values.clamp_max(0)
        high = scaled.kthvalue(len(scaled) + 1 - beyond).values.clamp_min(0)
        step = (high - low) / LARGEST_INPUT
        EightBitLinear.convert(linears[name], smooth, step, (-low / step).round().int())


def simulate_with(network: nn.Module, file: Path) -> None:
    """Let a transformer compute in 8 bits with the scales of a file, which `save` wrote."""
    scales = load_file(file)
    for name, linear in matrices(network):
        EightBitLinear.convert(linear, *(scales[f"{name}.{key}"] for key in _SCALES))


def round_weights(network: nn.Module) -> None:
    """Give the weights the values that they have in 8 bits, so that float32 computes alike."""
    for _, linear in matrices(network):
        cast(EightBitLinear, linear).round_weights()


def matrices(network: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Yield the matrices of 8 bits, by their names in a transformer's file of weights.

    The matrix that narrows a layer again is not one of them: a few of its inputs are so large that
    no scale fits all.
    """
    for name, module in network.named_modules():
        linear = isinstance(module, nn.Linear) and ".layer." in name
        if linear and module.in_features <= module.out_features:
            yield name, module


def save(network: nn.Module, folder: Path) -> None:
    """Write the scales of the inputs of a transformer's matrices into its folder."""
    save_file(scales_of(network), folder / SCALES_FILE)


def scales_of(network: nn.Module) -> dict[str, Tensor]:
    """Return the scales of the inputs of a transformer's matrices, as `SCALES_FILE` names them."""
    return {
        f"{name}.{key}": getattr(linear, key).cpu()
        for name, linear in matrices(network)
        for key in _SCALES
    }


@torch.inference_mode()
def _record_inputs(linears: dict[str, nn.Linear], run: Callable[[], object]) -> dict[str, Tensor]:
    """Return the inputs of each matrix during a run, (word pieces of all texts, k)."""
    seen: dict[str, list[Tensor]] = {name: [] for name in linears}

    def record(name: str, _: nn.Module, inputs: tuple[Tensor]) -> None:
        seen[name].append(inputs[0].flatten(0, -2).float())

    hooks = [
        linear.register_forward_pre_hook(partial(record, name)) for name, linear in linears.items()
    ]
    run()
    for hook in hooks:
        hook.remove()
    return {name: torch.cat(inputs) for name, inputs in seen.items()}
