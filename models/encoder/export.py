"""Exports models from torch to ONNX; the role heads stay outside the graph (`head_arrays.py`)."""

import hashlib
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnxscript.rewriter.ort_fusions import optimize_for_ort

from turnwise.models.arrays import Float32
from turnwise.models.encoder.eight_bits_graph import SCALES_FILE, in_eight_bits
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

VERSION = "fused-1"
"""Version of the exported graph: change it when `export` writes another graph for a model."""

_OPSET = 18
"""The newest opset with attention that can be fused, which beats the operator of opset 23."""

_WEIGHTS = "model.safetensors"
_TYPES = {
    "F16": (np.float16, onnx.TensorProto.FLOAT16),
    "F32": (np.float32, onnx.TensorProto.FLOAT),
}
_SMALL = 256
"""Numbers of an array that stays in the graph."""

_log = logging.getLogger("turnwise.encoder")


def in_onnx(
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
        wanted: What torch computes for them.
        spin: Whether the threads may spin for small batches.

    Returns:
        None if the model cannot be exported, or gives other numbers: torch must compute it.
    """
    try:
        if not folder.exists():
            _log.info("exporting %s to ONNX, once, into %s", name, folder)
            export(graph, folder, typed=len(probe) > 1)
        forward = OnnxForward(folder / FILE, pad, spin=spin)
        _check(forward(*probe), wanted, folder)
    except Exception as error:  # torch computes the same
        _log.warning("%s runs in torch, not in ONNX Runtime: %r", name, error)
        return None
    return forward


def _check(rows: Float32, wanted: Float32, folder: Path) -> None:
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


def export_graph(graph: torch.nn.Module, folder: Path, *, max_tokens: int) -> None:
    """Write a model's graph into its own folder, so that it can be served without torch.

    The graph refers to the numbers in `model.safetensors`, whatever their precision, and computes
    in float32. So it takes some kilobytes; only numbers that are in no such file are in the graph.
    A model with scales (`eight_bits.py`) gets a second graph, which computes in 8 bits.

    Args:
        graph: As for `export`, without types.
        folder: The model's folder.
        max_tokens: Word pieces of its longest text.

    Raises:
        torch.onnx.OnnxExporterError: ONNX has no equivalent of an operation of the model.
        OSError: The folder cannot be written.
    """
    model = convert(graph, INPUTS[:2]).model_proto
    if (folder / _WEIGHTS).exists():
        _refer(model.graph, folder / _WEIGHTS)
    for node in model.graph.node:  # drop the exporter's Python locations
        node.ClearField("metadata_props")
    for field in ("value_info", "metadata_props"):
        model.graph.ClearField(field)
    model.ClearField("metadata_props")
    onnx.helper.set_model_props(model, {MAX_TOKENS: str(max_tokens)})
    _write(model, folder / FILE)
    if (scales := folder / SCALES_FILE).exists():
        model.graph.CopyFrom(in_eight_bits(model.graph, folder / _WEIGHTS, scales))
        _write(model, folder / EIGHT_BITS_FILE)
    else:
        (folder / EIGHT_BITS_FILE).unlink(missing_ok=True)


def _write(model: onnx.ModelProto, file: Path) -> None:
    with replace_file(file) as fresh:
        fresh.write_bytes(model.SerializeToString())


@dataclass(frozen=True, slots=True)
class _Stored:
    """A tensor in a file of weights."""

    name: str
    shape: list[int]
    kind: int
    offset: int
    length: int
    transposed: bool

    def refer(self) -> onnx.TensorProto:
        """Return an array of a graph whose numbers are in the file."""
        array = onnx.TensorProto(name=self.name, dims=self.shape, data_type=self.kind)
        array.data_location = onnx.TensorProto.EXTERNAL
        location = {"location": _WEIGHTS, "offset": self.offset, "length": self.length}
        for key, value in location.items():
            array.external_data.add(key=key, value=str(value))
        return array


def _refer(graph: onnx.GraphProto, file: Path) -> None:
    """Replace the arrays of a graph that are in a file of weights by references to it.

    ONNX Runtime casts and transposes them once, when it loads the graph.
    """
    stored = dict(_read_stored(file))
    arrays: dict[str, onnx.TensorProto] = {}
    nodes: list[onnx.NodeProto] = []
    for array in graph.initializer:
        numbers = onnx.numpy_helper.to_array(array)
        found = stored.get(_key(numbers)) if numbers.size >= _SMALL else None
        if found is None:  # a new array, without the exporter's Python locations
            arrays[array.name] = onnx.numpy_helper.from_array(numbers, array.name)
            continue
        arrays[found.name] = found.refer()
        cast = f"{array.name}.cast" if found.transposed else array.name
        nodes.append(onnx.helper.make_node("Cast", [found.name], [cast], to=array.data_type))
        if found.transposed:
            nodes.append(onnx.helper.make_node("Transpose", [cast], [array.name], perm=[1, 0]))
    nodes += graph.node
    for field, values in (("initializer", arrays.values()), ("node", nodes)):
        graph.ClearField(field)
        getattr(graph, field).extend(values)


def _read_stored(file: Path) -> Iterator[tuple[bytes, _Stored]]:
    """Yield the tensors of a file of safetensors by their numbers in float32."""
    content = file.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    tensors: dict[str, dict[str, Any]] = json.loads(content[8:begin])
    for name, tensor in tensors.items():
        if (dtype := tensor.get("dtype")) in _TYPES:
            kind, onnx_kind = _TYPES[dtype]
            start, end = (begin + offset for offset in tensor["data_offsets"])
            shape = tensor["shape"]
            numbers = np.frombuffer(content[start:end], kind).astype(np.float32).reshape(shape)
            stored = _Stored(name, shape, onnx_kind, start, end - start, transposed=False)
            yield _key(numbers), stored
            if numbers.ndim == 2:
                yield _key(numbers.T), replace(stored, transposed=True)


def _key(numbers: NDArray[Any]) -> bytes:
    """Return a digest that only equal arrays have."""
    kind = f"{numbers.dtype} {numbers.shape}".encode()
    return hashlib.sha256(kind + np.ascontiguousarray(numbers).tobytes()).digest()


def convert(graph: torch.nn.Module, names: Sequence[str]) -> torch.onnx.ONNXProgram:
    """Return the ONNX program of a network whose inputs, (n, tokens) int64, have these names."""
    ids = torch.ones(2, 7, dtype=torch.int64)  # a size of 1 would become a constant
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with _quiet(), torch.inference_mode():
        program = torch.onnx.export(
            graph.eval(),
            tuple(torch.ones_like(ids) for _ in names),
            input_names=names,
            dynamic_shapes=(dynamic,) * len(names),
            opset_version=_OPSET,
            dynamo=True,
            verbose=False,
        )
        assert program is not None  # noqa: S101 - dynamo always returns one
        program.model, _ = optimize_for_ort(program.model)
    return program


@contextmanager
def _quiet() -> Iterator[None]:
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
