"""`turnwise serve`: starts the service."""

import logging
import os
from typing import Annotated

import typer

_log = logging.getLogger("turnwise")


def serve(
    *,
    host: Annotated[
        str | None, typer.Option(help="Address to bind to.", show_default="TURNWISE_HOST")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to bind to.", show_default="TURNWISE_PORT")
    ] = None,
    encoder_only: Annotated[
        bool,
        typer.Option(
            "--encoder-only", help="Serve only /v1/embeddings, which replicas call. Needs no Redis."
        ),
    ] = False,
) -> None:
    """Start the service.

    Settings are environment variables TURNWISE_*; docs/settings.md lists them.
    """
    # numpy reads it when it is loaded. Threads of its matrix products spin when they are done, and
    # take the cores from the encoder: a model with heads then serves a third fewer turns.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from turnwise.service.observe.logs import configure_logs
    from turnwise.service.settings import ignored_variables, read_settings

    given = {"host": host, "port": port}
    settings = read_settings(**{name: value for name, value in given.items() if value is not None})
    configure_logs(settings.log_level, text=settings.log_text)
    if ignored := ignored_variables():
        _log.warning("ignored variables that are no longer settings: %s", ", ".join(ignored))

    from turnwise.service.app.server import run

    run(settings, encoder_only=encoder_only)
