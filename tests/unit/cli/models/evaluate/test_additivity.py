from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_mixtures_are_compared_and_drawn(
    data: Path, triple: str, evaluate: Callable[..., Any]
) -> None:
    written = evaluate("additivity", "--data", data, "--model", triple, base=None)
    names = [row["system"].partition(" · ")[2] for row in written.json["rows"]]
    assert names[:2] == ["pair", "wrong order"]
    assert (written.folder / "cosine.png").is_file()
