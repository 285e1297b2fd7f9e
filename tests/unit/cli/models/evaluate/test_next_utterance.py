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


def test_next_utterance_takes_lengths_and_shows_parts(
    data: Path, triple: str, evaluate: Callable[..., Any]
) -> None:
    options = ["--history", "1", "3", "--parts"]
    written = evaluate("next-utterance", "--data", data, "--model", triple, *options)
    assert "tiny-triple · direct neighbours" in written.systems
    names = written.json["rows"][0]["metrics"]
    assert {"average_rank/h=1", "average_rank/h=3", "average_rank/words=1-4"} <= names.keys()
    assert "average_rank/h=2" not in names
