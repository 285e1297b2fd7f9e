from pathlib import Path

import pytest

from turnwise.models.files import (
    create_folder,
    recover_folder,
    remove_leftovers,
    replace_file,
    replace_folder,
)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "new" / "a.json"
    with replace_file(file) as fresh:
        fresh.write_text("one")
    file.chmod(0o640)
    with replace_file(file) as fresh:
        fresh.write_text("two")
        assert file.read_text() == "one"
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("two", 0o640)
    assert names(file.parent) == {"a.json"}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_file_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    file = tmp_path / "a.json"
    file.write_text("one")

    def write_half() -> None:
        with replace_file(file) as fresh:
            fresh.write_text("tw")
            raise error

    with pytest.raises(error):
        write_half()
    assert file.read_text() == "one"
    assert names(tmp_path) == {"a.json"}


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("one")
    (tmp_path / "link").symlink_to("a.json")
    with replace_file(tmp_path / "link") as fresh:
        fresh.write_text("two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.json").read_text() == "two"


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "a"
    with create_folder(folder) as fresh:
        (fresh / "part").write_text("one")
        assert not folder.exists()
    assert (folder / "part").read_text() == "one"
    assert names(folder.parent) == {"a"}


def test_a_folder_that_fails_does_not_appear(tmp_path: Path) -> None:
    def write_half() -> None:
        with create_folder(tmp_path / "a") as fresh:
            (fresh / "part").write_text("one")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        write_half()
    assert names(tmp_path) == set()


def test_a_folder_that_another_process_wrote_meanwhile_stays(tmp_path: Path) -> None:
    folder = tmp_path / "a"

    def write_second() -> None:
        with create_folder(folder) as fresh:
            (fresh / "part").write_text("ours")
            folder.mkdir()
            (folder / "part").write_text("theirs")

    with pytest.raises(OSError, match="not empty"):
        write_second()
    assert (folder / "part").read_text() == "theirs"


def test_whoever_may_read_a_folder_may_read_its_files(tmp_path: Path) -> None:
    with create_folder(tmp_path / "a") as fresh:
        (fresh / "card").touch()
        (fresh / "weights").touch(mode=0o600)
    card, weights = ((tmp_path / "a" / name).stat() for name in ("card", "weights"))
    assert weights.st_mode == card.st_mode


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b")):
        (tmp_path / f".new-{number}" / name).mkdir(parents=True)
    remove_leftovers(tmp_path, "a")
    assert names(tmp_path) == {".new-1"}
    remove_leftovers(tmp_path)
    assert names(tmp_path) == set()


def write(folder: Path, text: str) -> None:
    with replace_folder(folder) as fresh:
        (fresh / "state").write_text(text)


def read(folder: Path) -> str:
    recover_folder(folder)
    return (folder / "state").read_text()


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
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert read(tmp_path / "model") == "three"
