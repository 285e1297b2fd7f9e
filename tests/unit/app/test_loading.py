import sys
from pathlib import Path
from typing import Any

import pytest

from turnwise.models import DEFAULT_MODEL
from turnwise.models.errors import ModelError
from turnwise.service.app import loading
from turnwise.service.settings import Settings


@pytest.mark.parametrize("model", ["/nope", "./nope", "runs/mine/model", "runs/mine"])
def test_a_folder_that_does_not_exist_is_no_reason_to_install_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError, match=f"model '{model}': there is no folder '{model}'"):
        loading.load_encoder(Settings(), model)


@pytest.mark.parametrize(
    ("device", "gpu", "in_torch"),
    [(None, False, False), (None, True, True), ("cpu", True, False), ("cuda", False, True)],
)
def test_a_model_with_a_graph_runs_in_torch_on_a_gpu_only(
    monkeypatch: pytest.MonkeyPatch, device: str | None, gpu: bool, in_torch: bool
) -> None:
    monkeypatch.setattr(loading, "has_gpu", lambda: gpu)
    torch: Any = object()
    monkeypatch.setattr(loading, "load_in_torch", lambda *_: torch)
    encoder = loading.load_encoder(Settings.model_validate({"device": device}), DEFAULT_MODEL)
    assert (encoder is torch) is in_torch
