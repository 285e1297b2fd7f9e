"""Loads the models that the settings name: the encoder and the re-rankers."""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from turnwise.models.card import (
    OWN_RERANKER,
    has_own_reranker,
    locate_model,
    model_name,
    reranker_kind,
)
from turnwise.models.cores import has_gpu
from turnwise.models.extras import require
from turnwise.models.model_files import check_place
from turnwise.models.rerankers.cascade import Cascade, read_cascade
from turnwise.models.rerankers.pairs import PairReranker
from turnwise.service.encoder.model import Encoder
from turnwise.service.encoder.remote import RemoteEncoder
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings, SettingsError

if TYPE_CHECKING:  # loads torch
    from turnwise.models.encoder.torch import UtteranceEncoder
    from turnwise.models.rerankers.cross_encoder import CrossEncoder
    from turnwise.models.rerankers.ioi.model import IoI

CALL_SECONDS = 10.0
"""Longest call of a remote encoder: a longer batch would count as stalled."""

_log = logging.getLogger("turnwise")


def make_remote_encoder(settings: Settings, url: str, metrics: Metrics) -> RemoteEncoder:
    """Return the encoder at the URL; nothing is called yet.

    Raises:
        ModelError: The model has no card that states what its encoder computes.
    """
    key = settings.encoder_key.get_secret_value() if settings.encoder_key else None
    timeout = min(settings.request_timeout, CALL_SECONDS)
    return RemoteEncoder(settings.model, url, metrics, key=key, timeout=timeout)


def load_encoder(settings: Settings, model: str | Path) -> Encoder:
    """Load an encoder for serving: without torch if the model has a graph and no GPU runs it.

    Raises:
        SettingsError: The device cannot be used.
        ModelError: The model cannot be loaded.
        TurnwiseError: It needs torch, which is not installed.
    """
    check_place(model, locate_model(model))
    from turnwise.models.encoder.onnx import OnnxEncoder, has_graph  # noqa: PLC0415 - not if remote

    if has_graph(model) and runs_on_cpu(settings):
        return OnnxEncoder(model)
    return load_in_torch(settings, model)


def runs_on_cpu(settings: Settings) -> bool:
    """Return whether the settings name the CPU, or no device where there is no GPU."""
    return settings.device == "cpu" or not (settings.device or has_gpu())


def load_in_torch(settings: Settings, model: str | Path) -> "UtteranceEncoder":
    """Load any encoder; raises as `load_encoder`."""
    require("torch", "sentence_transformers")
    import torch  # noqa: PLC0415

    from turnwise.models.encoder.torch import UtteranceEncoder  # noqa: PLC0415

    try:
        torch.empty(0, device=settings.device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        why = str(error).partition("\n")[0]
        raise SettingsError(f"TURNWISE_DEVICE '{settings.device}' cannot be used: {why}") from None
    cache = settings.data_dir / "models"
    return UtteranceEncoder.for_serving(model, device=settings.device, cache=cache)


def load_reranker(settings: Settings) -> "IoI | CrossEncoder | None":
    """Return the re-ranker of the settings, of either kind.

    Raises:
        ModelError: The folder holds neither.
    """
    folder = settings.reranker
    if folder is None:
        return None
    from turnwise.models.rerankers.cross_encoder import CrossEncoder  # noqa: PLC0415
    from turnwise.models.rerankers.ioi.model import IoI  # noqa: PLC0415

    if reranker_kind(folder):
        return IoI.load(folder, settings.device)
    cache = settings.data_dir / "models"
    model = CrossEncoder.for_serving(folder, device=settings.device, cache=cache)
    _log.info("re-ranker %s loaded: %s", model.name, model.runtime)
    return model


def load_own_reranker(settings: Settings) -> tuple[PairReranker, Cascade] | None:
    """Return the model's own re-ranker and its cascade, if the settings want it and there is one.

    It runs in torch on a GPU, and without torch on a CPU.

    Raises:
        ModelError: Its files cannot be read.
    """
    model = settings.model
    if not settings.own_reranker or not has_own_reranker(model):
        return None
    folder = Path(locate_model(model))
    from turnwise.models.rerankers.own import OwnReranker  # noqa: PLC0415 - loads ONNX Runtime

    reranker: PairReranker
    if settings.encoder_url or runs_on_cpu(settings):
        reranker = OwnReranker(model)
    else:
        from turnwise.models.rerankers.cross_encoder import CrossEncoder  # noqa: PLC0415
        from turnwise.models.rerankers.pack import unpack  # noqa: PLC0415

        with TemporaryDirectory() as scratch:
            unpack(folder, Path(scratch, "unpacked"))
            cache = settings.data_dir / "models"
            reranker = CrossEncoder.for_serving(
                Path(scratch, "unpacked"), device=settings.device, cache=cache
            )
    _log.info("re-ranker of model %s loaded: %s", model_name(model), reranker.runtime)
    return reranker, read_cascade(folder / OWN_RERANKER)
