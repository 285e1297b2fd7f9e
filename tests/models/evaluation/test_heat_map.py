from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from turnwise.models.evaluation import heat_map
from turnwise.models.evaluation.heat_map import draw_heat_map


@pytest.mark.parametrize("count", [1, 2, 30])
def test_a_picture_grows_with_the_dialogue(tmp_path: Path, count: int) -> None:
    texts = [f"it costs ${n} or ${n + 1} and this goes on for rather long" for n in range(count)]
    path = tmp_path / "new" / "heat.png"
    draw_heat_map(np.eye(count, dtype=np.float32), texts, path)
    height, width, _ = imread(path).shape
    assert height == pytest.approx(120 * (4 + 0.28 * count), abs=2)
    assert width > height


def test_what_the_font_lacks_is_no_warning(tmp_path: Path) -> None:
    path = tmp_path / "heat.png"
    draw_heat_map(np.eye(2, dtype=np.float32), ["See you soon 🙂", "好的"], path)
    assert path.is_file()


def test_a_long_dialogue_has_a_picture_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heat_map, "NAMED", 10)
    for count in (10, 1000):
        draw_heat_map(
            np.zeros((count, count), np.float32), ["x"] * count, tmp_path / f"{count}.png"
        )
    few, many = (imread(tmp_path / f"{count}.png").shape for count in (10, 1000))
    assert many == few


def test_the_picture_shows_the_similarities(tmp_path: Path) -> None:
    texts = ["one", "two", "three"]
    pictures = []
    for similarity in (np.eye(3, dtype=np.float32), 1 - np.eye(3, dtype=np.float32)):
        draw_heat_map(similarity, texts, tmp_path / "heat.png")
        pictures.append(imread(tmp_path / "heat.png"))
    assert not np.array_equal(*pictures)
