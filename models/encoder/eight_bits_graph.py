"""Rewrites an exported graph to multiply integers of 8 bits, as `eight_bits.py` simulates it."""

from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.helper import make_node
from onnx.numpy_helper import from_array

SCALES_FILE = "eight_bits.safetensors"
"""The scales of each matrix's inputs: `smooth`, `step` and `zero` of an `EightBitLinear`."""
LARGEST_INPUT = 255
"""Greatest integer of an input, which is unsigned."""
LARGEST_WEIGHT = 127
"""Greatest integer of a weight, which is signed."""

Arrays = dict[str, NDArray[Any]]

_MICROSOFT = "com.microsoft"
_MASK = "attention_mask"
_MASK_INT32 = "attention_mask.int32"
_LEAST_STEP = 1e-12
_PASSING = {"Cast", "Mul", "Div", "Transpose", "Concat"}
"""Operators between a matrix in the file of weights and its product."""


def rewrite_in_eight_bits(
    graph: onnx.GraphProto, weights: Arrays, scales: Arrays
) -> onnx.GraphProto:
    """Return a graph with products of integers, wherever the scales of a product are known.

    The matrices stay in the file of weights; ONNX Runtime rounds them when it loads the graph.

    Args:
        graph: A graph that refers to its matrices by their names in the file of weights.
        weights: The matrices (n, k) of that file, of any precision.
        scales: The scales of the inputs; see `SCALES_FILE`.
    """
    new = onnx.GraphProto()
    new.CopyFrom(graph)
    rewriter = _Rewriter(new, weights, scales)
    nodes = [make_node("Cast", [_MASK], [_MASK_INT32], to=onnx.TensorProto.INT32)]
    for node in graph.node:
        if matrices := rewriter.find_scaled_matrices(node):
            nodes += rewriter.replace_product(node, matrices)
        else:
            nodes.append(node)
    new.ClearField("node")
    new.node.extend(rewriter.fold_biases(nodes))
    return new


class _Operands(NamedTuple):
    """The names of the arrays that a product of integers reads, in the order of its operator."""

    inputs: str
    weights: str
    step: str
    steps: str
    zero: str
    zeros: str


class _Rewriter:
    """Rewrites the products of a graph, and adds their arrays to it."""

    def __init__(self, graph: onnx.GraphProto, weights: Arrays, scales: Arrays) -> None:
        self._graph = graph
        self._weights = weights
        self._scales = scales
        self._source_of = {name: node for node in graph.node for name in node.output}

    def find_scaled_matrices(self, node: onnx.NodeProto) -> list[str]:
        """Return the names of the matrices of a product; none if the scales of one are unknown."""
        if node.op_type not in {"MatMul", "Attention"}:
            return []
        matrices = self._find_stored(node.input[1])
        if all(name_scale(name, "step") in self._scales for name in matrices):
            return matrices
        return []

    def _find_stored(self, name: str) -> list[str]:
        """Return the names in the file of weights of the arrays that an array consists of."""
        if name in self._weights:
            return [name]
        node = self._source_of.get(name)
        read = node.input if node and node.op_type in _PASSING else ()
        return [stored for other in read for stored in self._find_stored(other)]

    def replace_product(self, node: onnx.NodeProto, matrices: list[str]) -> list[onnx.NodeProto]:
        """Return the nodes that round the operands of a product, and the product of integers."""
        rounding, x = self._round_operands(node, matrices)
        if node.op_type == "MatMul":
            product = make_node("MatMulIntegerToFloat", x, node.output, domain=_MICROSOFT)
            return [*rounding, product]
        bias = node.input[2]
        (heads,) = (each.i for each in node.attribute if each.name == "num_heads")
        read = [x.inputs, x.weights, bias, x.step, x.steps, _MASK_INT32, x.zero, x.zeros]
        product = make_node("QAttention", read, node.output, domain=_MICROSOFT, num_heads=heads)
        return [*rounding, product]

    def fold_biases(self, nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Return the nodes; products of integers add the biases that were added to them next."""
        products = {
            node.output[0]: node for node in nodes if node.op_type == "MatMulIntegerToFloat"
        }
        left = []
        for node in nodes:
            product = products.get(node.input[0]) if len(node.input) == 2 else None
            if product is None or not self._is_bias(node.input[1]):
                left.append(node)
                continue
            product.input.append(node.input[1])
            if node.op_type == "BiasGelu":
                left.append(make_node("Gelu", node.input[:1], node.output, domain=_MICROSOFT))
            else:
                product.output[0] = node.output[0]
        return left

    def _is_bias(self, name: str) -> bool:
        """Return whether an array of the graph is a bias in the file of weights."""
        return any(self._weights[stored].ndim == 1 for stored in self._find_stored(name))

    def _round_operands(
        self, node: onnx.NodeProto, matrices: list[str]
    ) -> tuple[list[onnx.NodeProto], _Operands]:
        """Return the nodes that round the input of a product and its matrices, and their names."""
        # Matrices that read the same input have the same scales.
        smooth, step, zero = (
            self._scales[name_scale(matrices[0], name)] for name in ("smooth", "step", "zero")
        )
        scaled = np.concatenate([self._weights[name] * smooth for name in matrices])
        steps = np.maximum(np.abs(scaled).max(1) / LARGEST_WEIGHT, _LEAST_STEP)
        made = node.output[0]
        narrow = self._add(made, "narrow", 1 / smooth)
        widen = self._add(made, "widen", smooth[:, None])
        operands = _Operands(
            inputs=f"{made}.inputs",
            weights=f"{made}.weights",
            step=self._add(made, "step", step),
            steps=self._add(made, "steps", steps.astype(np.float32)),
            zero=self._add(made, "zero", zero.astype(np.uint8)),
            zeros=self._add(made, "zeros", np.zeros(len(steps), np.int8)),
        )
        narrowed = f"{made}.narrowed"
        widened = f"{made}.widened"
        inputs = [narrowed, operands.step, operands.zero]
        weights = [widened, operands.steps, operands.zeros]
        nodes = [
            make_node("Mul", [node.input[0], narrow], [narrowed]),
            make_node("QuantizeLinear", inputs, [operands.inputs]),
            make_node("Mul", [node.input[1], widen], [widened]),
            make_node("QuantizeLinear", weights, [operands.weights], axis=1),
        ]
        return nodes, operands

    def _add(self, made: str, name: str, array: NDArray[Any]) -> str:
        """Add an array to the graph; return its name."""
        self._graph.initializer.append(from_array(array, f"{made}.{name}"))
        return f"{made}.{name}"


def name_scale(matrix: str, name: str) -> str:
    """Return the name of one of the scales of a matrix: `smooth`, `step` or `zero`."""
    return f"{matrix.removesuffix('.weight')}.{name}"
