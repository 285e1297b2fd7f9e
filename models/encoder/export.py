"""Exports models from torch to ONNX; the role heads stay outside the graph (`head_arrays.py`)."""

import hashlib
import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir
import torch
from numpy.typing import NDArray
from onnxscript.rewriter.ort_fusions import optimize_for_ort
from safetensors import safe_open
from safetensors.numpy import load_file

from turnwise.models.arrays import Float32
from turnwise.models.encoder.eight_bits_file import factors_of, restore
from turnwise.models.encoder.eight_bits_graph import SCALES_FILE, Arrays, rewrite_in_eight_bits
from turnwise.models.encoder.onnx import (
    EIGHT_BITS_FILE,
    FILE,
    INPUTS,
    MAX_TOKENS,
    OnnxForward,
    Tokens,
)
from turnwise.models.errors import ModelError
from turnwise.models.files import create_folder, replace_file

VERSION = "fused-2"
"""Version of the exported graph: change it when `export` writes another graph for a model."""

_OPSET = 18
"""The newest opset with attention that can be fused, which beats the operator of opset 23."""

_WEIGHTS = "model.safetensors"
_TYPES: dict[str, tuple[type, int]] = {
    "F16": (np.float16, onnx.TensorProto.FLOAT16),
    "F32": (np.float32, onnx.TensorProto.FLOAT),
    "I8": (np.int8, onnx.TensorProto.INT8),
}
_SMALL = 256
"""Numbers of an array that stays in the graph."""

_log = logging.getLogger("turnwise.encoder")


def load_or_export(
    name: str,
    graph: torch.nn.Module,
    folder: Path,
    *,
    pad: int,
    probe: Sequence[Tokens],
    wanted: Float32,
    spin: bool = True,
) -> OnnxForward | None:
    """Return a model in ONNX Runtime, exported if the folder is not there yet.

    Args:
        name: The model's name, for the log.
        graph: As for `export`.
        folder: The exported model, whose name must change with the model.
        pad: Word piece that pads shorter texts.
        probe: Arguments of a call, to compare with torch.
        wanted: The rows that torch computes for them.
        spin: Whether the threads may spin for small batches.

    Returns:
        None if the model cannot be exported, or gives other numbers: torch must compute it.
    """
    try:
        if not folder.exists():
            _log.info("exporting %s to ONNX, once, into %s", name, folder)
            export(graph, folder, typed=len(probe) > 1)
        forward = OnnxForward(folder / FILE, pad, spin=spin)
        _check_rows(forward(*probe), wanted, folder)
    except Exception as error:  # torch computes the same
        _log.warning("%s runs in torch, not in ONNX Runtime: %r", name, error)
        return None
    return forward


def _check_rows(rows: Float32, wanted: Float32, folder: Path) -> None:
    if not np.allclose(rows, wanted, atol=1e-4):
        raise ModelError(f"the model in '{folder}' computes something else; delete it")


def export(graph: torch.nn.Module, folder: Path, *, typed: bool = False) -> None:
    """Write a model, from word pieces to rows of numbers, as ONNX; whole or not at all.

    Args:
        graph: A function of `input_ids`, `attention_mask` and, with types, `token_type_ids`; on
            the CPU in float32.
        folder: The new folder, 4 bytes a parameter. If another process writes it meanwhile,
            its files stay.
        typed: Whether the graph takes types.

    Raises:
        torch.onnx.OnnxExporterError: ONNX has no equivalent of an operation of the model.
        OSError: The folder cannot be written.
    """
    try:
        with create_folder(folder) as fresh:  # fails before the conversion, which takes seconds
            program = convert(graph, INPUTS if typed else INPUTS[:2])
            program.save(fresh / FILE, external_data=True)  # one file holds at most 2 GB
    except OSError:
        if not (folder / FILE).is_file():
            raise


def export_graph(
    graph: torch.nn.Module,
    folder: Path,
    *,
    max_tokens: int,
    typed: bool = False,
    shared: Path | None = None,
) -> None:
    """Write a model's graph into its folder, so that it can be served without torch.

    The graph refers to the numbers in `model.safetensors`, whatever their precision, and computes
    in float32. So it takes some kilobytes; only numbers that are in no such file are in the graph.
    A model with scales (`eight_bits.py`) gets a second graph, which computes in 8 bits.

    Args:
        graph: As for `export`.
        folder: The model's folder.
        max_tokens: Word pieces of its longest text.
        typed: Whether the graph takes types.
        shared: A file of weights in the folder above, whose vectors the graph looks up. ONNX
            Runtime reads no file outside the folder: `OnnxForward` takes these arrays by name.

    Raises:
        torch.onnx.OnnxExporterError: ONNX has no equivalent of an operation of the model.
        OSError: The folder cannot be written.
    """
    model = convert(graph, INPUTS if typed else INPUTS[:2]).model_proto
    files = []
    if (folder / _WEIGHTS).exists():
        files.append(_WeightsFile(folder / _WEIGHTS, shared=False))
    if shared:
        files.append(_WeightsFile(shared, shared=True))
    _replace_by_references(model.graph, files)
    _drop_locations(model)
    onnx.helper.set_model_props(model, {MAX_TOKENS: str(max_tokens)})
    _write(model, folder / FILE)
    if scales := _read_scales(folder):
        weights = restore(load_file(folder / _WEIGHTS))
        model.graph.CopyFrom(rewrite_in_eight_bits(model.graph, weights, scales))
        _write(model, folder / EIGHT_BITS_FILE)
    else:
        (folder / EIGHT_BITS_FILE).unlink(missing_ok=True)


def _drop_locations(model: onnx.ModelProto) -> None:
    """Delete the lines of Python code that the exporter notes for each node."""
    for node in model.graph.node:
        node.ClearField("metadata_props")
    for field in ("value_info", "metadata_props"):
        model.graph.ClearField(field)
    model.ClearField("metadata_props")


def _read_scales(folder: Path) -> Arrays:
    """Return the scales of the inputs, from a file of their own or among the weights."""
    for file in (folder / SCALES_FILE, folder / _WEIGHTS):
        if file.exists():
            with safe_open(file, "np") as opened:
                has_scales = any(name.endswith(".smooth") for name in opened.keys())  # noqa: SIM118
            if has_scales:
                return load_file(file)
    return {}


def _write(model: onnx.ModelProto, file: Path) -> None:
    with replace_file(file) as fresh:
        fresh.write_bytes(model.SerializeToString())


class _Stored(NamedTuple):
    """An array of a graph as a file of weights has it.

    Attributes:
        name: Its name in the file.
        transposed: Whether the file has it the other way round.
    """

    name: str
    transposed: bool


class _WeightsFile:
    """A file of safetensors that a graph refers to."""

    def __init__(self, file: Path, *, shared: bool) -> None:
        """Read a file in the folder of the graph, or one that is shared from the folder above."""
        self.shared = shared
        self._location = f"../{file.name}" if shared else file.name
        content = file.read_bytes()
        self._begin = 8 + int.from_bytes(content[:8], "little")
        tensors = json.loads(content[8 : self._begin])
        self._tensors: dict[str, dict[str, Any]] = {
            name: tensor for name, tensor in tensors.items() if tensor.get("dtype") in _TYPES
        }
        self._found: dict[bytes, _Stored] = {}
        for name, numbers in restore(self._read(content)).items():
            self._found[_digest(numbers)] = _Stored(name, transposed=False)
            if numbers.ndim == 2:
                self._found[_digest(numbers.T)] = _Stored(name, transposed=True)

    def _read(self, content: bytes) -> Arrays:
        arrays = {}
        for name, tensor in self._tensors.items():
            start, end = (self._begin + offset for offset in tensor["data_offsets"])
            numbers: NDArray[Any] = np.frombuffer(content[start:end], _TYPES[tensor["dtype"]][0])
            arrays[name] = numbers.reshape(tensor["shape"])
        return arrays

    def find(self, numbers: NDArray[Any]) -> _Stored | None:
        """Return where the file has these numbers; None if it does not."""
        return self._found.get(_digest(numbers))

    def factors(self, stored: _Stored) -> list[str]:
        """Return the names of the arrays that a matrix in 8 bits is scaled by."""
        return factors_of(stored.name, self._tensors)

    def refer(self, name: str) -> onnx.TensorProto:
        """Return an array of a graph whose numbers are in the file."""
        tensor = self._tensors[name]
        _, kind = _TYPES[tensor["dtype"]]
        array = onnx.TensorProto(name=name, dims=tensor["shape"], data_type=kind)
        array.data_location = onnx.TensorProto.EXTERNAL
        start, end = tensor["data_offsets"]
        location = {
            "location": self._location,
            "offset": self._begin + start,
            "length": end - start,
        }
        for key, value in location.items():
            array.external_data.add(key=key, value=str(value))
        return array


def _replace_by_references(graph: onnx.GraphProto, files: Sequence[_WeightsFile]) -> None:
    """Replace the arrays of a graph that are in files of weights by references to them.

    ONNX Runtime casts, scales and transposes them once, when it loads the graph. Only rows of a
    shared array are cast, each time: a copy in float32 would double its memory.
    """
    arrays: dict[str, onnx.TensorProto] = {}
    nodes: list[onnx.NodeProto] = []
    shared: dict[str, str] = {}
    for array in graph.initializer:
        numbers = onnx.numpy_helper.to_array(array)
        match = _find_match(numbers, files)
        if match is None:  # a new array, without the exporter's Python locations
            arrays[array.name] = onnx.numpy_helper.from_array(numbers, array.name)
            continue
        file, stored = match
        factors = file.factors(stored)
        arrays |= {name: file.refer(name) for name in (stored.name, *factors)}
        if file.shared:
            shared[array.name] = stored.name
        else:
            nodes += _read_stored(array, stored, factors)
    for node in graph.node:
        if node.input and node.input[0] in shared:
            nodes += _read_shared(node, shared)
        else:
            nodes.append(node)
    for field, values in (("initializer", arrays.values()), ("node", nodes)):
        graph.ClearField(field)
        getattr(graph, field).extend(values)


def _find_match(
    numbers: NDArray[Any], files: Sequence[_WeightsFile]
) -> tuple[_WeightsFile, _Stored] | None:
    """Return the first file that has these numbers, and where; None for a small array."""
    if numbers.size < _SMALL:
        return None
    matches = ((file, file.find(numbers)) for file in files)
    return next(((file, stored) for file, stored in matches if stored), None)


def _read_shared(node: onnx.NodeProto, shared: Mapping[str, str]) -> list[onnx.NodeProto]:
    """Return the nodes that read rows of a stored array instead of one of the graph."""
    rows = onnx.NodeProto()
    rows.CopyFrom(node)
    rows.input[0] = shared[node.input[0]]
    rows.output[0] = f"{node.output[0]}.stored"
    cast = onnx.helper.make_node("Cast", rows.output, node.output, to=onnx.TensorProto.FLOAT)
    return [rows, cast]


def _read_stored(
    array: onnx.TensorProto, stored: _Stored, factors: Sequence[str]
) -> list[onnx.NodeProto]:
    """Return the nodes that compute an array of a graph from the stored one; see `restore`."""
    nodes = [
        onnx.helper.make_node("Cast", [stored.name], [f"{array.name}.cast"], to=array.data_type)
    ]
    for operator, factor in zip(("Mul", "Div"), factors, strict=False):
        result = f"{array.name}.{operator.lower()}"
        nodes.append(onnx.helper.make_node(operator, [nodes[-1].output[0], factor], [result]))
    if stored.transposed:
        result = f"{array.name}.transpose"
        read = [nodes[-1].output[0]]
        nodes.append(onnx.helper.make_node("Transpose", read, [result], perm=[1, 0]))
    nodes[-1].output[0] = array.name
    return nodes


def _digest(numbers: NDArray[Any]) -> bytes:
    """Return a digest that only equal arrays have."""
    kind = f"{numbers.dtype} {numbers.shape}".encode()
    return hashlib.sha256(kind + np.ascontiguousarray(numbers).tobytes()).digest()


def convert(graph: torch.nn.Module, names: Sequence[str]) -> torch.onnx.ONNXProgram:
    """Return the ONNX program of a network whose inputs, (n, tokens) int64, have these names."""
    ids = torch.ones(2, 7, dtype=torch.int64)  # a size of 1 would become a constant
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with _silence_exporter(), torch.inference_mode():
        program = torch.onnx.export(
            graph.eval(),
            tuple(torch.ones_like(ids) for _ in names),
            input_names=names,
            dynamic_shapes=(dynamic,) * len(names),
            opset_version=_OPSET,
            dynamo=True,
            verbose=False,
        )
        assert program is not None  # dynamo always returns one
        program.model, _ = optimize_for_ort(program.model)
        _split_normalizations(program.model.graph)
    return program


def _split_normalizations(graph: onnx_ir.Graph) -> None:
    """Replace each fused sum and normalization by its parts.

    The fused operator takes five times as long as they do in ONNX Runtime 1.31 on a CPU.
    """
    for node in graph:
        if node.op_type != "SkipLayerNormalization":
            continue
        product, skipped, scale, shift, bias = node.inputs
        tape = onnx_ir.tape.Tape()
        total = tape.op("Add", [tape.op("Add", [product, bias]), skipped])
        epsilon = node.attributes["epsilon"]
        normalized = tape.op(
            "LayerNormalization", [total, scale, shift], {"axis": -1, "epsilon": epsilon}
        )
        onnx_ir.convenience.replace_nodes_and_values(
            graph, node, [node], tape.nodes, [node.outputs[0]], [normalized]
        )


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Silence the exporter's reports of its steps and torch's warnings of future changes."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
