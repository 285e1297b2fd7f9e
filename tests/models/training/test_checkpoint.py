from pathlib import Path

import pytest

from models.training.checkpoint import recover, replacing


def write(folder: Path, text: str) -> None:
    with replacing(folder) as fresh:
        (fresh / "state").write_text(text)


def read(folder: Path) -> str:
    recover(folder)
    return (folder / "state").read_text()


def test_a_folder_takes_the_place_of_another(tmp_path: Path) -> None:
    write(tmp_path / "model", "one")
    write(tmp_path / "model", "two")
    assert read(tmp_path / "model") == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("interrupted_in", range(1, 4))
def test_a_whole_folder_is_left_whenever_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted_in: int
) -> None:
    write(tmp_path / "model", "one")
    moves = 0
    rename = Path.rename

    def broken_off(self: Path, target: Path) -> Path:
        nonlocal moves
        moves += 1
        if moves == interrupted_in:
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", broken_off)
        try:
            write(tmp_path / "model", "two")
        except KeyboardInterrupt:
            assert interrupted_in < 3
    assert read(tmp_path / "model") == ("one" if interrupted_in < 3 else "two")
    write(tmp_path / "model", "three")
    assert read(tmp_path / "model") == "three"
