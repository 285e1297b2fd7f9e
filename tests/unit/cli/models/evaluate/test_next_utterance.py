from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_next_utterance_writes_and_prints_the_table(
    data: Path, triple: str, single: str, evaluate: Callable[..., Any]
) -> None:
    written = evaluate("next-utterance", "--data", data, "--model", triple, base=single)
    assert "BM25" in written.output
    assert written.json["task"] == "next-utterance"
    assert written.json["data"] == [str(data)]
    assert {"base · mean of the context", "tiny-triple · last 2 rows"} <= set(written.systems)
    assert (written.folder / "average_rank.png").is_file()
