from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_distances_are_written_and_drawn(
    data: Path, triple: str, evaluate: Callable[..., Any]
) -> None:
    written = evaluate("distances", "--data", data, "--model", triple, "--reach", "2")
    metrics = written.json["rows"][0]["metrics"]
    assert list(metrics)[2:] == [f"cosine/d={distance}" for distance in (-2, -1, 1, 2)]
    assert (written.folder / "cosine.png").is_file()
