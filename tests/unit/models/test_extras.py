import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from turnwise.models import extras
from turnwise.models.errors import TurnwiseError
from turnwise.models.extras import EXTRAS, install_line, require

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_modules_are_those_of_the_extra(extra: str) -> None:
    stated = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    served, names = (
        {Requirement(line).name.replace("-", "_") for line in stated[name]}
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
    with pytest.raises(TurnwiseError, match=rf"'{module}' is not .*\[{extra}\]'"):
        require(*EXTRAS[extra])


@pytest.mark.parametrize(
    ("stated", "line"),
    [
        (None, "pip install 'turnwise[train]'"),
        ('{"url": "https://a/turnwise.whl", "archive_info": {}}', "pip install 'turnwise[train]'"),
        (
            '{"url": "file:///my%20src/turnwise", "dir_info": {"editable": true}}',
            "pip install -e '/my src/turnwise[train]'",
        ),
        ('{"url": "file:///src/turnwise", "dir_info": {}}', "pip install '/src/turnwise[train]'"),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(
    monkeypatch: pytest.MonkeyPatch, stated: str | None, line: str
) -> None:
    installed = SimpleNamespace(read_text=lambda _: stated)
    monkeypatch.setattr(extras, "distribution", lambda _: installed)
    assert install_line("train") == line
