from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from turnwise.models.errors import DataError
from turnwise.models.rerankers.folder import save_reranker
from turnwise.models.rerankers.pairwise import ENCODER, Projectors
from turnwise.models.roles import EncoderKind
from turnwise.service.cli import app

run = CliRunner().invoke


@pytest.fixture
def pairwise_folder(tmp_path: Path, tiny_encoder_folder: Callable[[EncoderKind], Path]) -> Path:
    torch.manual_seed(0)
    folder = tmp_path / "pairwise"
    projectors = Projectors(embedding=32, projection=8, context_length=3)
    save_reranker(folder, "pairwise", projectors, projectors.sizes)
    encoder = SentenceTransformer(str(tiny_encoder_folder(EncoderKind.SINGLE)), device="cpu")
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


def test_ids_that_are_no_file_names_have_a_picture_each(
    tmp_path: Path, pairwise_folder: Path
) -> None:
    data = tmp_path / "days.csv"
    data.write_text("id,speaker,text\n5/3,A,a\n5/3,B,b\n5_3,A,a\n5_3,B,b\n")
    args = ["evaluate", "heat-map", "--data", str(data), "--model", str(pairwise_folder)]
    result = run(app, [*args, "--dialogue", "5/3", "5_3", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"5%2F3.png", "5_3.png"}


def test_a_file_without_a_dialogue_is_an_error(tmp_path: Path) -> None:
    data = tmp_path / "empty.jsonl"
    data.touch()
    result = run(app, ["evaluate", "heat-map", "--data", str(data), "--model", str(tmp_path)])
    assert isinstance(result.exception, DataError)
    assert str(result.exception) == f"{data}: no dialogue in it"
