from typing import Any

import pytest

from turnwise.models import DEFAULT_MODEL
from turnwise.service.app import components
from turnwise.service.settings import Settings


@pytest.mark.parametrize(
    ("device", "gpu", "in_torch"),
    [(None, False, False), (None, True, True), ("cpu", True, False), ("cuda", False, True)],
)
def test_a_model_with_a_graph_runs_in_torch_on_a_gpu_only(
    monkeypatch: pytest.MonkeyPatch, device: str | None, gpu: bool, in_torch: bool
) -> None:
    monkeypatch.setattr(components, "has_gpu", lambda: gpu)
    torch: Any = object()
    monkeypatch.setattr(components, "load_in_torch", lambda *_: torch)
    encoder = components.load_encoder(Settings.model_validate({"device": device}), DEFAULT_MODEL)
    assert (encoder is torch) is in_torch
