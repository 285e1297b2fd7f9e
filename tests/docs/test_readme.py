"""What README and pages name exists: files, options, settings, problems, routes."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

from turnwise.service import errors
from turnwise.service.api import create_api
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
SETTINGS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


def test_every_recipe_module_and_page_that_is_named_exists() -> None:
    names = r"\b(?:tests|models|service|benchmarks|research|docs)/[\w/]+(?:\.py|\.toml|\.md|/)"
    names += r"|(?<=`)(?:docker|k8s|models|examples)/[\w./-]+(?=`)"
    paths = re.findall(names, "\n".join([README, *PAGES]))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_setting_stands_in_the_table_with_its_default() -> None:
    table = dict(re.findall(r"^\| `TURNWISE_(\w+)` \| (.*?) \|", SETTINGS, re.MULTILINE))
    fields = {name.upper(): field.default for name, field in Settings.model_fields.items()}
    assert list(table) == list(fields)
    for name, default in fields.items():
        if name != "MODEL":
            shown = "" if default in {None, ()} else f"`{default}`"
            assert table[name].lower() == shown.lower()


def test_every_problem_stands_in_the_table_with_its_status_and_when_to_try_again() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    row = r"^\| `([a-z-]+)` \| (\d+) \| .* \| (\d*) ?\|$"
    table = {slug: (int(status), again) for slug, status, again in re.findall(row, page, re.M)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    problems = [kind for kind in kinds if issubclass(kind, errors.ServiceError)]
    expected = {kind.slug: (kind.status, str(kind.retry_after or "")) for kind in problems}
    assert table == expected


def test_every_path_of_the_api_stands_in_the_table() -> None:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield

    paths = create_api(Settings(), Metrics(), lifespan).openapi()["paths"]
    last = {path.split("}")[-1] or path.rsplit("/", 1)[0] for path in paths}
    assert "/turn" in last
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [part for part in last if part not in page] == []
