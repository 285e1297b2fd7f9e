from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_options_take_many_values(
    data: Path, tmp_path: Path, triple: str, single: str, evaluate: Callable[..., Any]
) -> None:
    more = data.with_name("more.jsonl")
    more.write_text(data.read_text())
    other = tmp_path / Path(triple).name  # a second model of this name
    other.symlink_to(triple)
    args = ["--data", data, more, "--model", triple, single, other, "--limit", "2"]
    written = evaluate("long-term", *args, "--setting", "3,1,0", "3,2,1")
    assert written.json["data"] == [str(data), str(more)]
    chains = [name for name in written.systems if name.endswith(" · chain")]
    models = ["BM25", "tiny-triple", "tiny-single", str(other)]
    assert chains == [f"{model} · chain" for model in models]
    metrics = written.json["rows"][0]["metrics"]
    assert written.json["note"] == "Sets of goals: 2 (h=3 d=1 f=0), 2 (h=3 d=2 f=1)."
    assert {"hits@1/h=3 d=1 f=0", "hits@1/h=3 d=2 f=1"} <= metrics.keys()
