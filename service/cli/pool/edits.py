"""`turnwise pool learn`, `remove` and `alias`: edits of a pool on a running service."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.models.texts import write_count
from turnwise.service.cli.connected import LOCAL, Key, Url, connected
from turnwise.service.wire import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from turnwise.service.client import Client, Pool, PoolInfo, Removed


def learn(
    *,
    journal: Annotated[
        list[Path], typer.Option(help="Folder of a journal; repeat it for all replicas.")
    ],
    pool: Annotated[str, typer.Option(help="Name of the pool.")],
    namespace: Annotated[str, typer.Option(help="Namespace of the pool.")] = DEFAULT_NAMESPACE,
    min_times: Annotated[
        int, typer.Option(min=1, help="Times that a candidate was chosen after an utterance.")
    ] = 2,
) -> None:
    """Print proposals of examples from a journal, as lines for a person to read.

    `turnwise pool load --add-examples` takes the lines.
    """
    from turnwise.service.journal.proposals import propose_examples

    proposals = list(propose_examples(journal, namespace, pool, min_times))
    for proposal in proposals:
        typer.echo(json.dumps(proposal, ensure_ascii=False))
    if not proposals:
        times = write_count(min_times, "time")
        typer.echo(
            f"no proposal: the journal has no utterance after which a candidate of pool {pool} was "
            f"chosen {times}; see --min-times and --namespace",
            err=True,
        )


def remove(
    file: Annotated[
        Path,
        typer.Argument(
            help="Candidates with ids, in any file that `turnwise pool load` takes, or a .txt with "
            "one id a line."
        ),
    ],
    *,
    pool: Annotated[str, typer.Option(help="Name of the pool.")],
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Remove candidates from a pool of a running service.

    The command removes the ids in batches. Each batch makes one version of the pool.
    """
    from turnwise.service.candidate_files import read_ids

    ids = read_ids(file)
    with connected(url, key) as client:
        total = remove_in_batches(client, client.pool(pool), ids)
    typer.echo(
        f"pool {pool}: {write_count(total.removed, 'candidate')} removed, {total.missing} not there"
    )


def remove_in_batches(client: "Client", pool: "Pool", ids: Sequence[str]) -> "Removed":
    """Remove candidates; return the sum of all batches, version and size of the last one."""
    from turnwise.service.client import Removed

    most = int(client.version().limits["max_candidates"])
    total = Removed(version=0, removed=0, missing=0, size=0)
    for start in range(0, len(ids), most):
        last = pool.remove_many(ids[start : start + most])
        total = replace(
            last, removed=total.removed + last.removed, missing=total.missing + last.missing
        )
    return total


def alias(
    name: Annotated[str, typer.Argument(help="Name of the alias.")],
    to: Annotated[str, typer.Argument(help="Name of the pool that it points at from now on.")],
    *,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Create an alias of a pool on a running service, or move it to another pool."""
    from turnwise.service.client import NotFoundError

    with connected(url, key) as client:
        before = None
        with suppress(NotFoundError):
            before = client.pool(name).info()
        pool = client.pool(name).point_to(to)
    if before is not None and (lacking := _find_lacking_settings(before, pool)):
        typer.echo(
            f"warning: pool {pool.name} lacks settings of pool {before.name}: {', '.join(lacking)}",
            err=True,
        )
    typer.echo(
        f"alias {name}: pool {pool.name}, version {pool.version}, "
        f"{write_count(pool.size, 'candidate')}"
    )


def _find_lacking_settings(before: "PoolInfo", pool: "PoolInfo") -> list[str]:
    """Return the settings that change answers and that only the pool before has."""
    from turnwise.service.wire.pools import PoolSettings

    names = (name for name in PoolSettings._fields if name != "description")
    return [
        name for name in names if getattr(before, name) is not None and getattr(pool, name) is None
    ]
