"""`turnwise pool load`, `learn`, `remove` and `alias`: edits of a pool on a running service."""

import json
from pathlib import Path
from typing import Annotated

import typer

from turnwise.service.cli.connected import LOCAL, Key, Url, connected
from turnwise.service.cli.pool.options import (
    BodyColumn,
    Encoding,
    ExamplesColumn,
    GroupColumn,
    IdColumn,
    MetadataColumns,
    TextColumn,
    split_names,
)
from turnwise.service.cli.progress import UploadProgress


def load(
    file: Annotated[
        Path,
        typer.Argument(
            help="Candidates: .jsonl, .json, .csv or .tsv with a text and optionally id, examples, "
            "group and others, or .txt with one text a line (also .gz, .xz)."
        ),
    ],
    *,
    pool: Annotated[str, typer.Option(help="Name of the pool; created if it does not exist.")],
    add_examples: Annotated[
        bool,
        typer.Option(
            "--add-examples",
            help="Add only the examples of the file, to candidates that the pool has.",
        ),
    ] = False,
    text: TextColumn = None,
    examples: ExamplesColumn = None,
    id: IdColumn = None,
    group: GroupColumn = None,
    body: BodyColumn = None,
    metadata: MetadataColumns = None,
    encoding: Encoding = None,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Upload candidates to a running service, in batches.

    Rows with the same text, or the same id, are one candidate with the examples of all of them.
    Columns that are not read otherwise become metadata.

    A batch makes one version of the pool, or changes nothing if it fails. After an interruption,
    run the command again: it skips the candidates that the pool has.
    """
    from turnwise.service.client import CandidateFile, Columns, NotFoundError

    columns = Columns(text, examples, id, group, body, split_names(metadata))
    candidates = CandidateFile.read(file, columns, encoding)
    for note in candidates.notes:
        typer.echo(f"{file}: {note}")
    with connected(url, key) as client, UploadProgress() as progress:
        target = client.pool(pool)
        try:
            loaded = target.load(candidates, progress, add_examples=add_examples)
        except NotFoundError:
            if add_examples:
                raise
            target.create()
            loaded = target.load(candidates, progress)
    counted = f", {loaded.examples} examples" if loaded.examples else ""
    typer.echo(
        f"pool {pool}: version {loaded.version}, {loaded.size} candidates "
        f"({loaded.upserted} new or changed, {loaded.unchanged} as before){counted}"
    )


def learn(
    *,
    journal: Annotated[
        list[Path], typer.Option(help="Folder of a journal; repeat it for all replicas.")
    ],
    pool: Annotated[str, typer.Option(help="Name of the pool.")],
    namespace: Annotated[str, typer.Option(help="Namespace of the pool.")] = "default",
    min_times: Annotated[
        int, typer.Option(min=1, help="Times that a candidate was chosen after an utterance.")
    ] = 2,
) -> None:
    """Print proposals of examples from a journal, as lines for a person to read.

    `turnwise pool load --add-examples` takes the lines.
    """
    from turnwise.service.journal.proposals import propose_examples

    for proposal in propose_examples(journal, namespace, pool, min_times):
        typer.echo(json.dumps(proposal, ensure_ascii=False))


def remove(
    file: Annotated[Path, typer.Argument(help='Lines of {"id"} (.jsonl; .gz, .xz).')],
    *,
    pool: Annotated[str, typer.Option(help="Name of the pool.")],
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Remove candidates from a pool of a running service.

    The command removes the ids in batches. Each batch makes one version of the pool.
    """
    ids = _read_ids(file)
    removed = 0
    missing = 0
    with connected(url, key) as client:
        most = int(client.version().limits["max_candidates"])
        for start in range(0, len(ids), most):
            edited = client.pool(pool).remove_many(ids[start : start + most])
            removed += edited.removed
            missing += edited.missing
    typer.echo(f"pool {pool}: {removed} candidates removed, {missing} were not there")


def alias(
    name: Annotated[str, typer.Argument(help="Name of the alias.")],
    to: Annotated[str, typer.Argument(help="Name of the pool that it points at from now on.")],
    *,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Create an alias of a pool on a running service, or move it to another pool."""
    with connected(url, key) as client:
        pool = client.pool(name).point_to(to)
    typer.echo(f"alias {name}: pool {pool.name}, version {pool.version}, {pool.size} candidates")


def _read_ids(file: Path) -> list[str]:
    """Return the ids that a file lists, without duplicates."""
    from turnwise.models.errors import DataError
    from turnwise.models.text_files import read_jsonl

    ids: dict[str, None] = {}
    for number, record in read_jsonl(file):
        if not isinstance(record.get("id"), str):
            raise DataError("the line has no id", str(file), number, "id")
        ids[record["id"]] = None
    return list(ids)
