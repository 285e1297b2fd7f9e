"""ONNX Runtime for one batch of an encoder: on a CPU about twice as fast as torch for one text."""

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
"""Version of the exported graph: bump it when `export` writes another for the same model."""

_OPSET = 18
"""The newest whose attention the fusions know; fused it is faster than the operator of 23."""

_INPUTS = ("input_ids", "attention_mask")
_ERRORS_ONLY = 3
_FEW = 2
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of a period, or "max", and the period (cgroup v2)."""


class OnnxForward:
    """Runs one padded batch of an exported encoder, float32."""

    runtime = "onnxruntime float32 on cpu"

    def __init__(self, folder: Path, pad: int, threads: int | None = None) -> None:
        """Load what `export` wrote.

        Args:
            folder: The exported encoder.
            pad: Word piece that fills a shorter text.
            threads: Threads of one batch; `usable_cores` where left out.
        """
        # Threads that spin between operators save a fifth of the time of one text or two, which
        # are the [B1] and [B2] of one turn; those that go on after the last operator would only
        # take the cores from the rest of the service. Where there are more texts the service is
        # busy, and needs its cores itself.
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
    """Return how many cores this process can keep busy, at least one.

    Those that it may run on; fewer where OMP_NUM_THREADS says so, or where its control group has
    a smaller share, as a container has of its node: threads beyond it would wait for each other.
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
        model: On the CPU, in float32.
        folder: Where to, 4 bytes a parameter; one that another process wrote meanwhile stays.

    Raises:
        torch.onnx.OnnxExporterError: The model computes something that has no equal in ONNX.
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
    ids = torch.ones(2, 7, dtype=torch.int64)  # no size of 1, which would be taken for a constant
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
        assert program is not None  # noqa: S101 - of dynamo it never is
        program.model, _ = optimize_for_ort(program.model)
    return program


class _Forward(torch.nn.Module):
    """The whole model, pooling and all, as a function of two tensors."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self._model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        pooled = self._model(features)["sentence_embedding"]
        return torch.nn.functional.normalize(pooled, dim=-1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's talk of each step, and of what torch will change, from the log."""
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
