from dataclasses import dataclass
from pathlib import Path

import pytest

from service.commands.evaluate.options import by_name


@dataclass
class Model:
    name: str


def test_models_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = by_name(["old/shop", "shop", "base"], lambda name: Model(Path(name).name), {"base"})
    assert list(loaded) == ["shop", str(tmp_path / "shop"), str(tmp_path / "base")]
