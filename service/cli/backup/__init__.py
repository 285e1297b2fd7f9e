"""`turnwise backup` and `turnwise restore`: every pool of a Redis, with aliases and settings."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from turnwise.service.cli.pool.options import RedisUrl, read_settings_of


def backup(
    folder: Annotated[Path, typer.Argument(help="Folder to write to; must be empty or not exist.")],
    *,
    redis_url: RedisUrl = None,
) -> None:
    """Save the pools of all namespaces, with aliases, settings and learned examples.

    Services go on meanwhile: each pool is saved as it is at one moment. After an interruption, run
    the command again: it skips what is saved and has not changed. Sessions are not saved.
    """
    from turnwise.models.errors import TurnwiseError
    from turnwise.models.texts import write_count
    from turnwise.service.cli.backup.work import back_up

    manifest = asyncio.run(back_up(read_settings_of(redis_url), folder, typer.echo))
    typer.echo(f"saved {manifest.summary} in {folder}")
    if unsaved := manifest.unsaved:
        why = "; ".join(f"{name}: {reason}" for name, reason in unsaved.items())
        count = write_count(len(unsaved), "pool or alias", "pools or aliases")
        raise TurnwiseError(f"{count} could not be saved: {why}")


def restore(
    folder: Annotated[Path, typer.Argument(help="Folder that `turnwise backup` wrote.")],
    *,
    redis_url: RedisUrl = None,
) -> None:
    """Restore all pools and aliases of a backup.

    Each of its pools gets exactly the candidates and settings of the backup, in one version; other
    pools stay as they are. The command first checks every file, and changes nothing if one is
    missing or damaged. After an interruption, run it again.
    """
    from turnwise.service.cli.backup.work import restore_all

    manifest = asyncio.run(restore_all(read_settings_of(redis_url), folder, typer.echo))
    typer.echo(f"restored {manifest.summary}")
    if unsaved := manifest.unsaved:
        typer.echo(f"the backup has no copy of {', '.join(unsaved)}", err=True)
