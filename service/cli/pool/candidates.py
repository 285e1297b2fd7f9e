"""`turnwise pool list`, `show` and `edit`: what a pool can say, on a running service."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.models.errors import TurnwiseError
from turnwise.models.texts import shorten, write_count
from turnwise.service.cli.connected import LOCAL, Key, Url, connected
from turnwise.service.cli.pages import read_pages

if TYPE_CHECKING:
    from turnwise.service.cli.pool.candidate_file import CandidateChanges
    from turnwise.service.client import Client, Pool
    from turnwise.service.client.operations import CandidateFields
    from turnwise.service.wire.pools import PoolCandidate

_PAGE = 500
_LONGEST = 100
_EDITOR = "notepad" if os.name == "nt" else "vi"

PoolName = Annotated[str, typer.Argument(help="Name of the pool.")]
CandidateId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the candidate, as `turnwise pool list` shows it.")
]


def list_candidates(
    pool: Annotated[
        str | None, typer.Argument(help="Name of a pool.", show_default="list the pools")
    ] = None,
    *,
    words: Annotated[
        str | None,
        typer.Option(help="List only candidates that contain this, also in an example."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(help='List only candidates with these metadata: {"topic": "hotel"}.'),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most candidates to list; 0 for all.")] = 50,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """List the pools of a running service, or the candidates of one."""
    condition = None if where is None else _parse_object(where, "--where")
    if pool is None and (words is not None or condition is not None):
        raise TurnwiseError("--words and --where list candidates: name their pool")
    with connected(url, key) as client:
        if pool is None:
            _list_pools(client)
            return
        found = _read_candidates(client.pool(pool), words, condition)
        shown = 0
        for candidate in islice(found, limit or None):
            typer.echo(_describe(candidate))
            shown += 1
        if next(found, None):
            typer.echo(f"the first {shown} are shown; --limit shows more", err=True)
        elif not shown:
            typer.echo("no candidate", err=True)


def show(pool: PoolName, candidate: CandidateId, *, url: Url = LOCAL, key: Key = None) -> None:
    """Show a candidate with its examples, and those that it has learned."""
    from turnwise.service.cli.pool.candidate_file import write_candidate

    with connected(url, key) as client:
        typer.echo(write_candidate(client.pool(pool).candidate(candidate)), nl=False)


def edit(
    pool: PoolName,
    candidate: CandidateId,
    *,
    text: Annotated[str | None, typer.Option(help="The new text.")] = None,
    group: Annotated[str | None, typer.Option(help="The new group; '' for none.")] = None,
    metadata: Annotated[str | None, typer.Option(help="The new metadata, as JSON.")] = None,
    add_example: Annotated[
        list[str] | None, typer.Option(help="An example to add; repeat it for several.")
    ] = None,
    remove_example: Annotated[
        list[str] | None,
        typer.Option(help="An example to remove, also a learned one; repeat it for several."),
    ] = None,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Change a candidate. Without options, an editor opens with it; EDITOR names another one.

    The change makes a new version of the pool. Fields that you do not change stay as they are.
    """
    from turnwise.service.cli.pool.candidate_file import CandidateChanges

    fields = _collect_fields(text, group, metadata)
    with connected(url, key) as client:
        target = client.pool(pool)
        before = target.candidate(candidate)
        removed = remove_example or []
        learned = [each.text for each in before.learned or []]
        forgotten = [each for each in learned if each in removed]
        _check_removed(removed, [*before.examples, *learned])
        if add_example:
            fields["add_examples"] = add_example
        if kept := [each for each in removed if each not in forgotten]:
            fields["remove_examples"] = kept
        if changes := CandidateChanges(fields, forgotten):
            _apply(target, before, changes)
        else:
            _edit_file(target, before)


def _collect_fields(text: str | None, group: str | None, metadata: str | None) -> "CandidateFields":
    """Return the fields that options change."""
    from turnwise.service.client.operations import CandidateFields

    fields = CandidateFields()
    if text is not None:
        fields["text"] = text
    if group is not None:
        fields["group"] = group or None
    if metadata is not None:
        fields["metadata"] = _parse_object(metadata, "--metadata")
    return fields


def _apply(pool: "Pool", before: "PoolCandidate", changes: "CandidateChanges") -> None:
    """Send the changes: first the fields, which the service may reject."""
    version = None
    if changes.fields:
        edited = pool.change(before.id, **changes.fields)
        for warning in edited.warnings:
            typer.echo(f"warning: {warning}", err=True)
        version = edited.version if edited.upserted else None
    for example in changes.forgotten:
        version = pool.unlearn(before.id, example).version
    if version is None:
        typer.echo("nothing was changed")
    else:
        typer.echo(f"pool {pool.name}: version {version}, candidate {before.id} was changed")


def _edit_file(pool: "Pool", before: "PoolCandidate") -> None:
    """Let a person change a candidate in an editor.

    Raises:
        TurnwiseError: The edited file is not that of a candidate, or the service rejects it. The
            file is kept.
    """
    from turnwise.service.cli.pool.candidate_file import read_changes, write_candidate

    file = Path(mkdtemp()) / "candidate.toml"
    file.write_text(write_candidate(before), "utf-8")
    try:
        _open_editor(file)
        _apply(pool, before, read_changes(file.read_bytes(), before))
    except TurnwiseError as error:
        error.add_note(f"the file is {file}")
        raise
    shutil.rmtree(file.parent)


def _open_editor(file: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or _EDITOR
    try:
        subprocess.run([*shlex.split(editor), str(file)], check=True)  # noqa: S603 - the user's own
    except (OSError, ValueError) as error:  # shlex raises ValueError if a quote has no end
        why = error.strerror if isinstance(error, OSError) else error
        what = f"the editor '{editor}' cannot be started: {why}; set EDITOR"
        raise TurnwiseError(what) from None
    except subprocess.CalledProcessError as error:
        what = f"the editor '{editor}' ended with status {error.returncode}; nothing was changed"
        raise TurnwiseError(what) from None


def _check_removed(removed: list[str], known: list[str]) -> None:
    for example in removed:
        if example not in known:
            raise typer.BadParameter(
                f"the candidate has no example '{example}'", param_hint="--remove-example"
            )


def _list_pools(client: "Client") -> None:
    pools = client.pools().pools
    if not pools:
        typer.echo("no pool: `turnwise pool load FILE --pool NAME` makes one", err=True)
    for pool in pools:
        facts = (
            f"{pool.name}: {write_count(pool.size, 'candidate')}, version {pool.version}, "
            f"{pool.state}"
        )
        typer.echo(f"{facts}; {pool.description}" if pool.description else facts)


def _read_candidates(
    pool: "Pool", words: str | None, where: dict[str, Any] | None
) -> Iterator["PoolCandidate"]:
    """Yield the candidates that match; print the warnings of the first page."""
    pages = read_pages(lambda cursor: pool.candidates(words, where, limit=_PAGE, cursor=cursor))
    for number, page in enumerate(pages):
        if number == 0:
            for warning in page.warnings:
                typer.echo(f"warning: {warning}", err=True)
        yield from page.candidates


def _describe(candidate: "PoolCandidate") -> str:
    text = shorten(" ".join(candidate.text.split()), _LONGEST)
    facts = [f"group {candidate.group}"] if candidate.group else []
    if candidate.examples:
        facts.append(f"examples: {len(candidate.examples)}")
    if candidate.learned:
        facts.append(f"learned: {len(candidate.learned)}")
    return f"{candidate.id}  {text}" + (f"  [{', '.join(facts)}]" if facts else "")


def _parse_object(text: str, option: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"this is not JSON: {error}", param_hint=option) from None
    if not isinstance(value, dict):
        raise typer.BadParameter(
            'this is not an object such as {"topic": "hotel"}', param_hint=option
        )
    return value
