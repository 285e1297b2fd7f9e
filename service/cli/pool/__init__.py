"""`turnwise pool`: loads, encodes, saves, restores and moves pools of candidates."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.console import Console

from turnwise.models.extras import EXTRAS, require
from turnwise.service.cli.connected import LOCAL, Key, Url, connected
from turnwise.service.cli.progress import UploadProgress

if TYPE_CHECKING:
    from turnwise.service.settings import Settings
    from turnwise.service.wire.fields import StoreName

pool = typer.Typer(
    help="Load, encode, save, restore and move pools of candidates.", no_args_is_help=True
)


def _name(value: str | None) -> str | None:
    """Return a valid name, by the rules of the API."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415

    from turnwise.service.wire.fields import Name  # noqa: PLC0415

    try:
        return value if value is None else TypeAdapter[str](Name).validate_python(value)
    except ValidationError:
        raise typer.BadParameter(
            f"'{value}' is not a name: use up to 128 letters, digits and . _ ~ -, "
            "and begin with a letter or digit"
        ) from None


Namespace = Annotated[
    str, typer.Option(help="Namespace of the pool: the name of the API key.", callback=_name)
]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        help="URL of the Redis that holds the pools.", show_default="TURNWISE_REDIS_URL, or private"
    ),
]


@pool.command("load")
def load(
    file: Annotated[
        Path, typer.Argument(help='Lines of {"id", "text", "metadata"} (.jsonl; .gz, .xz).')
    ],
    *,
    pool: Annotated[str, typer.Option(help="Name of the pool; created if it does not exist.")],
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Upload candidates to a running service, in batches.

    A batch makes one version of the pool, or changes nothing if it fails. After an interruption,
    run the command again: it skips the candidates that the pool has.
    """
    from turnwise.service.client import NotFoundError  # noqa: PLC0415

    with connected(url, key) as client, UploadProgress() as progress:
        target = client.pool(pool)
        try:
            edited = target.load(file, progress)
        except NotFoundError:  # only now, so that a file that cannot be read leaves no empty pool
            target.create()
            edited = target.load(file, progress)
    typer.echo(
        f"pool {pool}: version {edited.version}, {edited.size} candidates "
        f"({edited.upserted} new or changed, {edited.unchanged} as before)"
    )


@pool.command("remove")
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
    from turnwise.models.data import read_jsonl  # noqa: PLC0415
    from turnwise.models.errors import DataError  # noqa: PLC0415

    listed: dict[str, None] = {}
    for number, record in read_jsonl(file):
        if not isinstance(record.get("id"), str):
            raise DataError("the line has no id", str(file), number, "id")
        listed[record["id"]] = None
    ids, removed, missing = [*listed], 0, 0
    with connected(url, key) as client:
        most = int(client.version().limits["max_candidates"])
        for start in range(0, len(ids), most):
            edited = client.pool(pool).remove_many(ids[start : start + most])
            removed, missing = removed + edited.removed, missing + edited.missing
    typer.echo(f"pool {pool}: {removed} candidates removed, {missing} were not there")


@pool.command("alias")
def alias(
    name: Annotated[str, typer.Argument(help="Name of the alias.")],
    to: Annotated[str, typer.Argument(help="Name of the pool that it points at from now on.")],
    *,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Create an alias of a pool on a running service, or move it to another pool."""
    with connected(url, key) as client:
        made = client.pool(name).point_to(to)
    typer.echo(f"alias {name}: pool {made.name}, version {made.version}, {made.size} candidates")


@pool.command("snapshot")
def snapshot(
    name: Annotated[str, typer.Argument(help="Name of the pool.", callback=_name)],
    folder: Annotated[Path, typer.Argument(help="Folder to write to; must be empty or not exist.")],
    *,
    namespace: Namespace = "default",
    redis_url: RedisUrl = None,
) -> None:
    """Write a snapshot of a pool to a folder.

    The folder holds candidates, vectors, and a manifest with their checksums.
    """
    from turnwise.service.cli.pool.snapshots import save  # noqa: PLC0415 - loads torch

    with Console().status(f"reading pool {name}"):
        made = asyncio.run(save(_settings(redis_url, namespace), namespace, name, folder))
    typer.echo(f"pool {name}: version {made.version}, {made.size} candidates, written to {folder}")


@pool.command("restore")
def restore(
    folder: Annotated[Path, typer.Argument(help="Folder of the snapshot.")],
    *,
    pool: Annotated[
        str | None,
        typer.Option(help="Name of the pool.", show_default="as in the snapshot", callback=_name),
    ] = None,
    namespace: Namespace = "default",
    redis_url: RedisUrl = None,
) -> None:
    """Restore a pool from a snapshot.

    This makes one version. The command rejects an incomplete snapshot, and then changes nothing.
    """
    from turnwise.service.cli.pool.snapshots import restore  # noqa: PLC0415 - loads torch

    with UploadProgress() as progress:
        work = restore(_settings(redis_url, namespace), namespace, pool, folder, progress)
        name, edited = asyncio.run(work)
    typer.echo(f"pool {name}: version {edited.version}, {edited.size} candidates, from {folder}")


@pool.command("encode")
def encode(
    catalogue: Annotated[
        list[str],
        typer.Argument(
            help="Files or URLs with id (optional), text and metadata: "
            ".parquet, .jsonl or .csv (the last two also .gz, .xz)."
        ),
    ],
    *,
    out: Annotated[str, typer.Option(help="Folder or URL for the parts.")],
    model: Annotated[
        str | None, typer.Option(help="The model.", show_default="TURNWISE_MODEL, or the shipped")
    ] = None,
    shard: Annotated[
        str, typer.Option(help="I/N: encode the I-th of N shares, as one job of an array.")
    ] = "1/1",
    ray: Annotated[
        str | None,
        typer.Option(
            help="Encode on a Ray cluster: its address, `auto` for the one that this machine is "
            "part of, or `local` for one on this machine alone.",
            show_default="one process encodes",
        ),
    ] = None,
) -> None:
    """Encode a catalogue into a folder of Parquet files, which `turnwise pool import` loads.

    After an interruption, run the command again: it skips the parts of 10,000 candidates that are
    complete.
    """
    require(*EXTRAS["bulk"], *(EXTRAS["ray"] if ray else ()))
    from turnwise.service.cli.pool.catalogues import encode  # noqa: PLC0415 - loads torch
    from turnwise.service.settings import read_settings  # noqa: PLC0415

    number, of = _shard(shard)
    settings = read_settings(model=model) if model else read_settings()
    with UploadProgress() as progress:
        work = encode(settings, catalogue, out, progress, shard=number, shards=of, ray=ray)
        done = asyncio.run(work)
    parts = len(done.manifest.parts)
    typer.echo(
        f"{out}: {done.encoded} candidates encoded now, "
        f"{parts - done.missing} of {parts} parts are there"
    )


@pool.command("import")
def import_(
    folder: Annotated[str, typer.Argument(help="Folder or URL that `turnwise pool encode` wrote.")],
    *,
    pool: Annotated[
        str,
        typer.Option(help="Name of the pool; created if it does not exist.", callback=_name),
    ],
    store: Annotated[
        str | None,
        typer.Option(help="Where a new pool is: local, milvus or qdrant.", show_default="local"),
    ] = None,
    namespace: Namespace = "default",
    redis_url: RedisUrl = None,
) -> None:
    """Replace the candidates of a pool by an encoded catalogue, without encoding.

    This makes one version. The command rejects an incomplete folder, or vectors of another model,
    and then changes nothing.
    """
    require(*EXTRAS["bulk"])
    from turnwise.service.cli.pool.catalogues import load  # noqa: PLC0415 - loads torch

    where = _store(store, "--store") if store else None
    with UploadProgress("loading") as progress:
        work = load(_settings(redis_url, namespace), namespace, pool, folder, progress, store=where)
        edited = asyncio.run(work)
    typer.echo(f"pool {pool}: version {edited.version}, {edited.size} candidates, from {folder}")


@pool.command("move")
def move(
    name: Annotated[str, typer.Argument(help="Name of the pool.", callback=_name)],
    *,
    to: Annotated[str, typer.Option(help="Candidate store: milvus or qdrant.")],
    namespace: Namespace = "default",
    redis_url: RedisUrl = None,
) -> None:
    """Move a pool to the candidate store that TURNWISE_STORE_URL names.

    The command copies candidates and vectors. Running services keep using the pool, and switch to
    the copy when it is complete.
    """
    from turnwise.service.cli.pool.snapshots import move  # noqa: PLC0415 - loads torch

    with Console().status(f"copying pool {name}"):
        made = asyncio.run(
            move(_settings(redis_url, namespace), namespace, name, _store(to, "--to", "local"))
        )
    typer.echo(
        f"pool {name}: version {made.version}, {made.size} candidates, in the store {made.store}"
    )


def _store(name: str, option: str, *without: str) -> "StoreName":
    """Return the store that an option names."""
    from turnwise.service.wire.fields import StoreName  # noqa: PLC0415

    stores = [store for store in get_args(StoreName) if store not in without]
    if name not in stores:
        raise typer.BadParameter(f"'{name}' is none of {', '.join(stores)}", param_hint=option)
    return cast("StoreName", name)


def _shard(text: str) -> tuple[int, int]:
    """Return I and N of `I/N`."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise typer.BadParameter(f"'{text}' is not I/N, such as 1/8", param_hint="--shard")
    return int(number), int(of)


def _settings(redis_url: str | None, namespace: str) -> "Settings":
    """Read the settings, and say whose pools the command is about."""
    from turnwise.service.settings import read_settings  # noqa: PLC0415

    settings = read_settings(redis_url=redis_url) if redis_url else read_settings()
    typer.echo(f"{settings.redis_place}, namespace {namespace}", err=True)
    return settings
