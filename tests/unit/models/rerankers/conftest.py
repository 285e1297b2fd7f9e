from pathlib import Path

import pytest

from tests.support.rerankers import save_tiny_cross_encoder, tiny_ioi
from tests.unit.models.conftest import Folder
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.roles import EncoderKind


@pytest.fixture
def ioi() -> IoI:
    return tiny_ioi()


@pytest.fixture
def cross_encoder_folder(tmp_path: Path, tiny_encoder_folder: Folder) -> Path:
    return save_tiny_cross_encoder(tmp_path / "cross", tiny_encoder_folder(EncoderKind.SINGLE))
