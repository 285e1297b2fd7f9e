"""ONNX Runtime: a model's export and forward pass. One text on a CPU takes half the time."""

import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxscript.rewriter.ort_fusions import optimize_for_ort

from turnwise.models.arrays import Float32
from turnwise.models.cores import usable_cores
from turnwise.models.errors import ModelError

FILE = "model.onnx"
VERSION = "fused-1"
"""Version of the exported graph: change it when `export` writes another graph for a model."""

_OPSET = 18
"""The newest opset whose attention the fusions know; fused, it beats the operator of opset 23."""

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_ERRORS_ONLY = 3
_FEW = 2
"""Texts of a batch up to which threads spin."""

Tokens = list[list[int]]
"""Word pieces of each text."""

_log = logging.getLogger("turnwise.encoder")


class OnnxForward:
    """Runs one padded batch of an exported model, float32."""

    runtime = "onnxruntime float32 on cpu"

    def __init__(
        self, folder: Path, pad: int, threads: int | None = None, *, spin: bool = True
    ) -> None:
        """Load what `export` wrote.

        Args:
            folder: The exported model.
            pad: Word piece that pads shorter texts.
            threads: Threads of one batch; by default `usable_cores`.
            spin: Whether the threads may spin for small batches.
        """
        # Threads that spin between operators save a fifth of the time for one or two texts, the
        # [B1] and [B2] of one turn; they must stop after the last operator, to leave the cores to
        # the rest of the service. With more texts the service is busy and needs the cores itself.
        self.threads = threads = threads or usable_cores()
        self._many = _session(folder, threads, "session.intra_op.allow_spinning", "0")
        self._few = (
            _session(folder, threads, "session.force_spinning_stop", "1") if spin else self._many
        )
        self._pad = pad

    def __call__(self, tokens: Tokens, types: Tokens | None = None) -> Float32:
        """Return the model's rows for n ≥ 1 texts.

        Args:
            tokens: Their word pieces.
            types: The type of each word piece, for a model that was exported with types.
        """
        mask = _padded([[1] * len(ids) for ids in tokens], 0)
        inputs = [_padded(tokens, self._pad), mask]
        if types is not None:
            inputs.append(_padded(types, 0))
        session = self._few if len(tokens) <= _FEW else self._many
        (rows,) = session.run(None, dict(zip(_INPUTS, inputs, strict=False)))
        return cast(Float32, rows)


def _padded(rows: Tokens, pad: int) -> NDArray[np.int64]:
    padded = np.full((len(rows), max(map(len, rows))), pad, np.int64)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return padded


def _session(folder: Path, threads: int, option: str, value: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = threads
    options.add_session_config_entry(option, value)
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(folder / FILE, options, providers=providers)


def in_onnx(
    name: str,
    graph: torch.nn.Module,
    folder: Path,
    *,
    pad: int,
    threads: int | None,
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
        threads: Threads of one batch; by default `usable_cores`.
        probe: Arguments of a call, to compare with torch.
        wanted: What torch computes for them.
        spin: Whether the threads may spin for small batches.

    Returns:
        None if torch must compute the model, since it cannot be exported or computes otherwise.
    """
    try:
        if not folder.exists():
            _log.info("exporting %s to ONNX, once, into %s", name, folder)
            export(graph, folder, typed=len(probe) > 1)
        forward = OnnxForward(folder, pad, threads, spin=spin)
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
            that one stays.
        typed: Whether the graph takes types.

    Raises:
        torch.onnx.OnnxExporterError: ONNX has no equal for an operation of the model.
        OSError: The folder cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as scratch:
        written = Path(scratch) / folder.name
        written.mkdir()
        program = _convert(graph, _INPUTS if typed else _INPUTS[:2])
        program.save(written / FILE, external_data=True)  # one file holds at most 2 GB
        try:
            written.rename(folder)
        except OSError:
            if not (folder / FILE).is_file():
                raise


def _convert(graph: torch.nn.Module, names: Sequence[str]) -> torch.onnx.ONNXProgram:
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
