"""`turnwise doctor`: checks settings, model, Redis, pools and port, and prints the findings."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnwise.models.texts import write_count
from turnwise.service.urls import hide_secrets

Grade = Literal["ok", "warn", "fail"]

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    subject: str
    """The thing that was checked."""
    grade: Grade
    """`fail` keeps the service from serving; `warn` does not."""
    found: str
    advice: str = ""
    """The fix; empty if none is needed."""


def doctor(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for a program to read.")
    ] = False,
) -> None:
    """Check settings, model, Redis, pools and port, and print advice.

    The exit status is 1 if the service could not serve.
    """
    from turnwise.service.cli.doctor.examine import examine
    from turnwise.service.settings import SettingsError, read_settings

    async def collect(doing: Callable[[str], None]) -> list[Finding]:
        try:
            settings = read_settings()
        except SettingsError as error:
            return [Finding("settings", "fail", str(error), "correct or unset these variables")]
        return [finding async for finding in examine(settings, doing)]

    console = Console()
    with console.status("reading the settings") as status:
        findings = asyncio.run(collect(status.update))
    failed = sum(finding.grade == "fail" for finding in findings)
    if as_json:
        found = {"serves": not failed, "checks": [asdict(finding) for finding in findings]}
        print(hide_secrets(json.dumps(found, indent=2)))  # noqa: T201 - without colours and line breaks
    else:
        console.print(_make_table(findings))
        summary = f"{failed} of {write_count(len(findings), 'check')} failed"
        console.print(summary if failed else "the service can serve", highlight=False)
    if failed:
        raise typer.Exit(1)


def _make_table(findings: Sequence[Finding]) -> Table:
    table = Table(box=SIMPLE_HEAD, highlight=False)
    for heading in ("", "check", "found", "advice"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        grade = f"[{_COLOURS[finding.grade]}]{finding.grade}"
        texts = (finding.subject, finding.found, finding.advice)
        table.add_row(grade, *(escape(hide_secrets(text)) for text in texts))
    return table
