"""`turnwise pool load`: puts the candidates of a file into a pool of a running service."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.models.errors import TurnwiseError
from turnwise.models.texts import write_count
from turnwise.service.cli.connected import LOCAL, Key, Url, connected
from turnwise.service.cli.options import with_options
from turnwise.service.cli.pool.edits import remove_in_batches
from turnwise.service.cli.pool.options import Encoding, read_columns
from turnwise.service.cli.progress import UploadProgress

if TYPE_CHECKING:
    from turnwise.service.cli.pool.changes import PoolChanges
    from turnwise.service.client import CandidateFile, Columns, Loaded, Pool, Removed

CandidatesPath = Annotated[
    Path,
    typer.Argument(
        help="Candidates: .jsonl, .json, .csv or .tsv with a text and optionally id, examples, "
        "group and others, or .txt with one text a line (also .gz, .xz)."
    ),
]
AddExamples = Annotated[
    bool,
    typer.Option(
        "--add-examples",
        help="Add only the examples of the file, to candidates that the pool has.",
    ),
]
Replace = Annotated[
    bool,
    typer.Option(
        "--replace", help="Also remove the candidates that the file does not have, if you agree."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before --replace removes.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]


@with_options(columns=read_columns)
def load(
    file: CandidatesPath,
    *,
    columns: "Columns",
    pool: Annotated[str, typer.Option(help="Name of the pool; created if it does not exist.")],
    add_examples: AddExamples = False,
    replace: Replace = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    encoding: Encoding = None,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Upload candidates to a running service, in batches.

    Rows with the same text, or the same id, are one candidate with the examples of all of them.
    Columns that are not read otherwise become metadata.

    A batch makes one version of the pool, or changes nothing if it fails. After an interruption,
    run the command again: it skips the candidates that the pool has. Candidates that the file does
    not have stay in the pool, unless you --replace them.
    """
    from turnwise.service.cli.pool.changes import PoolChanges
    from turnwise.service.client import CandidateFile

    if add_examples and (replace or dry_run):
        raise TurnwiseError("--add-examples cannot be combined with --replace or --dry-run")
    candidates = CandidateFile.read(file, columns, encoding)
    for note in candidates.notes:
        typer.echo(f"{file}: {note}")
    with connected(url, key) as client:
        target = client.pool(pool)
        changes = PoolChanges.find(candidates, target) if replace or dry_run else PoolChanges()
        if dry_run:
            _show(changes, pool, replace=replace)
            return
        if changes.missing and not yes:
            count = write_count(len(changes.missing), "candidate")
            typer.confirm(f"Remove {count} that the file does not have?", abort=True)
        loaded = _load(target, candidates, add_examples=add_examples)
        removal = remove_in_batches(client, target, list(changes.missing))
    _report(pool, loaded, removal)


def _load(pool: "Pool", file: "CandidateFile", *, add_examples: bool) -> "Loaded":
    """Upload the candidates; create the pool if it does not exist."""
    from turnwise.service.client import NotFoundError

    with UploadProgress() as progress:
        try:
            return pool.load(file, progress, add_examples=add_examples)
        except NotFoundError:
            if add_examples:
                raise
            pool.create()
            return pool.load(file, progress)


def _report(pool: str, loaded: "Loaded", removal: "Removed") -> None:
    """Print what loading changed."""
    for warning in loaded.warnings:
        typer.echo(f"warning: {warning}", err=True)
    counts = [f"({loaded.upserted} new or changed, {loaded.unchanged} as before)"]
    if removal.removed:
        counts.append(f"{removal.removed} removed")
    if loaded.examples:
        counts.append(f"{write_count(loaded.examples, 'example')} in the file")
    version = removal.version or loaded.version
    size = write_count(loaded.size - removal.removed, "candidate")
    typer.echo(f"pool {pool}: version {version}, {size} {', '.join(counts)}")


def _show(changes: "PoolChanges", pool: str, *, replace: bool) -> None:
    """Print what loading would change."""
    for line in changes.lines(removed=replace):
        typer.echo(line)
    others = f"{len(changes.missing)} that the file lacks would {'go' if replace else 'stay'}"
    new_pool = "" if changes.pool_exists else ", which does not exist yet"
    typer.echo(
        f"pool {pool}{new_pool}: {len(changes.new)} new, {len(changes.changed)} changed, "
        f"{changes.unchanged} as before; {others}"
    )
