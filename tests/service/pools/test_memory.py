import math
from pathlib import Path

import pytest

from turnwise.service.pools import upkeep


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(upkeep, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(upkeep, "CGROUP", tmp_path)
    return tmp_path


def test_where_nothing_tells_memory_has_no_end(system: Path) -> None:
    assert not list(system.iterdir())
    assert upkeep.available_memory() == math.inf


def test_the_machine_has_what_is_available(system: Path) -> None:
    (system / "meminfo").write_text("MemTotal:  9 kB\nMemAvailable:    3 kB\n")
    assert upkeep.available_memory() == 3072


@pytest.mark.parametrize(("most", "left"), [("4096", 1296), ("max", 3072)])
def test_a_container_has_what_its_limit_leaves(system: Path, most: str, left: int) -> None:
    (system / "meminfo").write_text("MemAvailable: 3 kB\n")
    (system / "memory.max").write_text(f"{most}\n")
    (system / "memory.current").write_text("3000\n")
    (system / "memory.stat").write_text("active_file 5\ninactive_file 200\n")
    assert upkeep.available_memory() == left


def test_this_system_tells() -> None:
    assert 0 < upkeep.available_memory() < 1 << 50
