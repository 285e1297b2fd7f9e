import re
from pathlib import Path

import numpy as np
import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_tour_runs_and_picks_the_reply_that_fits() -> None:
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert block
    names: dict[str, object] = {}
    exec(block.group(1), names)  # noqa: S102 - what a reader would run
    query, candidates, why = (np.asarray(names[n]) for n in ("query", "candidates", "why"))
    best = names["best"]
    assert isinstance(best, tuple)
    assert best[1] == "Sure, I have moved your stay to Saturday."
    assert why.sum(axis=0) == pytest.approx(candidates @ query, abs=1e-5)


def test_every_recipe_and_module_that_it_names_exists() -> None:
    root = Path(__file__).parents[1]
    paths = re.findall(r"\b(?:models|service|benchmarks)/[\w/]+(?:\.py|\.toml|\.md|/)", README)
    assert paths
    assert [path for path in paths if not (root / path).exists()] == []
