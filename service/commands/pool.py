"""`turnwise pool`: catalogues of candidates."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

pool = typer.Typer(help="Load, save and restore pools of candidates.", no_args_is_help=True)


@pool.command("load")
def load(
    file: Annotated[
        Path, typer.Argument(help='Lines of {"id", "text", "metadata"} (.jsonl; .gz, .xz).')
    ],
    *,
    pool: Annotated[str, typer.Option(help="Name of the pool; made where there is none.")],
    url: Annotated[
        str, typer.Option(envvar="TURNWISE_URL", help="Of the service.")
    ] = "http://127.0.0.1:8000",
    key: Annotated[
        str | None, typer.Option(envvar="TURNWISE_KEY", help="API key with the scope pools.")
    ] = None,
) -> None:
    """Upload candidates to a running service, as one version: all of them or none."""
    from service.client import upload  # noqa: PLC0415
    from service.progress import UploadProgress  # noqa: PLC0415

    with UploadProgress() as progress:
        edited = upload(file, pool, url=url, key=key, progress=progress)
    Console().print(
        f"pool {pool}: version {edited['version']}, {edited['size']} candidates "
        f"({edited['upserted']} new or changed, {edited['unchanged']} as before)",
        markup=False, highlight=False,
    )  # fmt: skip
