"""`turnwise pool encode` and `import`: a catalogue to encoded parts, and parts to a pool."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from turnwise.models.extras import EXTRAS, require
from turnwise.models.texts import write_count
from turnwise.service.cli.options import with_options
from turnwise.service.cli.pool.options import (
    Encoding,
    Namespace,
    RedisUrl,
    check_name,
    parse_shard,
    parse_store,
    read_columns,
    read_settings_of,
)
from turnwise.service.cli.progress import UploadProgress
from turnwise.service.urls import show_url
from turnwise.service.wire import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from turnwise.service.candidate_files import Columns


@with_options(columns=read_columns)
def encode(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="CATALOGUE...",
            help="Files or URLs: .parquet, or candidates as `turnwise pool load` takes them.",
        ),
    ],
    *,
    columns: "Columns",
    out: Annotated[str, typer.Option(help="Folder or URL for the parts.")],
    model: Annotated[
        str | None, typer.Option(help="The model.", show_default="TURNWISE_MODEL, or the shipped")
    ] = None,
    shard: Annotated[
        str, typer.Option(help="I/N: encode the I-th of N shares, as one job of an array.")
    ] = "1/1",
    encoding: Encoding = None,
) -> None:
    """Encode a catalogue into a folder of Parquet files, which `turnwise pool import` loads.

    After an interruption, run the command again: it skips the parts of 10,000 candidates that are
    complete.
    """
    require(*EXTRAS["bulk"])
    from turnwise.service.candidate_files import CandidateReader
    from turnwise.service.cli.pool.bulk import encode_catalogue
    from turnwise.service.pools.files.catalogue import Catalogue
    from turnwise.service.settings import read_settings

    share = parse_shard(shard)
    settings = read_settings(model=model) if model else read_settings()
    read = Catalogue.read(files, CandidateReader(columns, encoding))
    for note in read.notes:
        typer.echo(note)
    with UploadProgress() as progress:
        done = asyncio.run(encode_catalogue(settings, read, out, progress, share))
    parts = len(done.manifest.parts)
    typer.echo(
        f"{show_url(out)}: {write_count(done.encoded, 'candidate')} encoded now, "
        f"{parts - done.missing} of {write_count(parts, 'part')} there"
    )


def import_(
    folder: Annotated[str, typer.Argument(help="Folder or URL that `turnwise pool encode` wrote.")],
    *,
    pool: Annotated[
        str,
        typer.Option(help="Name of the pool; created if it does not exist.", callback=check_name),
    ],
    store: Annotated[
        str | None,
        typer.Option(
            help="Where a new pool is: local, milvus, or experimentally qdrant.",
            show_default="local",
        ),
    ] = None,
    namespace: Namespace = DEFAULT_NAMESPACE,
    redis_url: RedisUrl = None,
) -> None:
    """Replace the candidates of a pool by an encoded catalogue, without encoding.

    This makes one version. The command rejects an incomplete folder, or vectors of another model,
    and then changes nothing.
    """
    require(*EXTRAS["bulk"])
    from turnwise.service.cli.pool.bulk import import_parts

    where = parse_store(store, "--store") if store else None
    settings = read_settings_of(redis_url, namespace)
    with UploadProgress("loading") as progress:
        work = import_parts(settings, namespace, pool, folder, progress, store=where)
        edited = asyncio.run(work)
    typer.echo(
        f"pool {pool}: version {edited.version}, {write_count(edited.size, 'candidate')}, from "
        f"{show_url(folder)}"
    )
