from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from models.rerankers.folder import save_reranker
from models.rerankers.pairwise import ENCODER, Projectors
from models.roles import Kind
from service.cli import app

run = CliRunner().invoke


@pytest.fixture
def pairwise_folder(tmp_path: Path, tiny_encoder_folder: Callable[[Kind], Path]) -> Path:
    torch.manual_seed(0)
    folder = tmp_path / "pairwise"
    projectors = Projectors(embedding=32, projection=8, context_length=3)
    save_reranker(folder, "pairwise", projectors, projectors.sizes)
    encoder = SentenceTransformer(str(tiny_encoder_folder(Kind.SINGLE)), device="cpu")
    encoder.save_pretrained(str(folder / ENCODER), create_model_card=False)
    return folder


@pytest.mark.parametrize(("chosen", "drawn"), [([], ["0"]), (["2", "4"], ["2", "4"])])
def test_the_chosen_dialogues_are_drawn(
    data: Path, tmp_path: Path, pairwise_folder: Path, chosen: list[str], drawn: list[str]
) -> None:
    args = ["evaluate", "heat-map", "--data", str(data), "--model", str(pairwise_folder)]
    args += ["--dialogue", *chosen] if chosen else []
    result = run(app, [*args, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    pictures = sorted((tmp_path / "out").iterdir())
    assert [picture.stem for picture in pictures] == drawn
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_a_dialogue_that_is_not_there_is_named(data: Path, tmp_path: Path) -> None:
    args = ["evaluate", "heat-map", "--data", str(data), "--dialogue", "17"]
    result = run(app, [*args, "--model", str(tmp_path)])
    assert result.exit_code == 2
    assert "no dialogue '17'" in result.output
