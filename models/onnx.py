"""ONNX Runtime: an encoder's export and forward pass. One text on a CPU takes half the time."""

import logging
import math
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import numpy as np
import onnxruntime
import torch
from onnxscript.rewriter.ort_fusions import optimize_for_ort
from sentence_transformers import SentenceTransformer

from turnwise.models.arrays import Float32

FILE = "model.onnx"
VERSION = "fused-1"
"""Version of the exported graph: change it when `export` writes another graph for a model."""

_OPSET = 18
"""The newest opset whose attention the fusions know; fused, it beats the operator of opset 23."""

_INPUTS = ("input_ids", "attention_mask")
_ERRORS_ONLY = 3
_FEW = 2
"""Texts of a batch up to which threads spin."""
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of a period, or "max", and the period (cgroup v2)."""


class OnnxForward:
    """Runs one padded batch of an exported encoder, float32."""

    runtime = "onnxruntime float32 on cpu"

    def __init__(self, folder: Path, pad: int, threads: int | None = None) -> None:
        """Load what `export` wrote.

        Args:
            folder: The exported encoder.
            pad: Word piece that pads shorter texts.
            threads: Threads of one batch; by default `usable_cores`.
        """
        # Threads that spin between operators save a fifth of the time for one or two texts, the
        # [B1] and [B2] of one turn; they must stop after the last operator, to leave the cores to
        # the rest of the service. With more texts the service is busy and needs the cores itself.
        self._few = _session(folder, threads, "session.force_spinning_stop", "1")
        self._many = _session(folder, threads, "session.intra_op.allow_spinning", "0")
        self._pad = pad

    def __call__(self, tokens: list[list[int]]) -> Float32:
        """Return (n, d) unit rows of n texts in word pieces, n ≥ 1."""
        lengths = [len(ids) for ids in tokens]
        ids = np.full((len(tokens), max(lengths)), self._pad, np.int64)
        mask = np.zeros_like(ids)
        for row, (length, pieces) in enumerate(zip(lengths, tokens, strict=True)):
            ids[row, :length], mask[row, :length] = pieces, 1
        session = self._few if len(tokens) <= _FEW else self._many
        (vectors,) = session.run(None, dict(zip(_INPUTS, (ids, mask), strict=True)))
        return cast(Float32, vectors)


def usable_cores() -> int:
    """Return the number of cores that this process can keep busy, at least one.

    That is the number of cores it may run on, limited by OMP_NUM_THREADS and by the CPU quota of
    its control group, such as a container's: more threads would wait for each other.
    """
    cores = [len(os.sched_getaffinity(0))]
    if (asked := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
        cores.append(int(asked))
    with suppress(OSError):
        limit, period = _CPU_QUOTA.read_text(encoding="ascii").split()
        if limit != "max":
            cores.append(math.ceil(int(limit) / int(period)))
    return max(min(cores), 1)


def _session(
    folder: Path, threads: int | None, option: str, value: str
) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = threads or usable_cores()
    options.add_session_config_entry(option, value)
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(folder / FILE, options, providers=providers)


def export(model: SentenceTransformer, folder: Path) -> None:
    """Write an encoder, from word pieces to unit vectors, as ONNX; whole or not at all.

    Args:
        model: The encoder, on the CPU in float32.
        folder: The new folder, 4 bytes a parameter. If another process writes it meanwhile,
            that one stays.

    Raises:
        torch.onnx.OnnxExporterError: ONNX has no equal for an operation of the model.
        OSError: The folder cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as scratch:
        written = Path(scratch) / folder.name
        written.mkdir()
        _convert(model).save(written / FILE, external_data=True)  # one file holds at most 2 GB
        try:
            written.rename(folder)
        except OSError:
            if not (folder / FILE).is_file():
                raise


def _convert(model: SentenceTransformer) -> torch.onnx.ONNXProgram:
    ids = torch.ones(2, 7, dtype=torch.int64)  # a size of 1 would become a constant
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with _quiet(), torch.inference_mode():
        program = torch.onnx.export(
            _Forward(model).eval(),
            (ids, torch.ones_like(ids)),
            input_names=_INPUTS,
            dynamic_shapes=(dynamic, dynamic),
            opset_version=_OPSET,
            dynamo=True,
            verbose=False,
        )
        assert program is not None  # noqa: S101 - dynamo always returns one
        program.model, _ = optimize_for_ort(program.model)
    return program


class _Forward(torch.nn.Module):
    """The whole model, with pooling, as a function of two tensors."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self._model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        pooled = self._model(features)["sentence_embedding"]
        return torch.nn.functional.normalize(pooled, dim=-1)


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
