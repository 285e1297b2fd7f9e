"""Checks of this machine: variables, access, folders, files, cores, device, port."""

import errno
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from turnwise.models.cores import has_gpu, usable_cores
from turnwise.models.errors import DataError, TurnwiseError
from turnwise.models.extras import install_line
from turnwise.models.texts import write_count
from turnwise.service.api.access.keys import ApiKeys
from turnwise.service.cli.doctor import Finding
from turnwise.service.cli.options import find_nearest, is_writable
from turnwise.service.client import Client, ClientError, UnavailableError
from turnwise.service.errors import NotEnoughMemory
from turnwise.service.observe.metrics import Metrics
from turnwise.service.observe.tracing import trace_endpoint
from turnwise.service.pools import read_candidates
from turnwise.service.redaction import load_hook
from turnwise.service.settings import Settings, SettingsError, ignored_variables, local_url

_ROOM = 1 << 30
_PATIENCE = 2.0
"""Seconds that a collector of traces has to accept a connection."""


def examine_settings(settings: Settings) -> Iterator[Finding]:
    """Yield the findings about settings and files; this starts nothing."""
    if ignored := ignored_variables():
        found = f"{', '.join(ignored)}: ignored, no longer settings"
        yield Finding("variables", "warn", found, "unset them")
    yield _examine_access(settings)
    yield _examine_data_folder(settings.data_dir, private_redis=settings.redis_url is None)
    if settings.default_pool:
        yield _examine_default_pool(settings.default_pool, settings.max_pool_size)
    for subject, folder in (("pairwise", settings.pairwise), ("reranker", settings.reranker)):
        if folder:
            yield _examine_model_folder(subject, folder)
    if settings.redact:
        yield _examine_redaction(settings.redact)
    if settings.journal:
        yield _examine_journal(settings.journal, is_redacted=settings.redact is not None)
    if settings.tracing:
        yield _examine_traces()
    yield _examine_threads(settings.search_threads)


def examine_device(device: str) -> Finding:
    """Check that the model runs on the best device of this machine.

    Args:
        device: The type of the device: "cpu", "cuda".
    """
    if device == "cpu" and has_gpu():
        advice = "set TURNWISE_DEVICE=cuda, or unset it"
        return Finding("device", "warn", "cpu, although there is a GPU", advice)
    if device == "cpu" and shutil.which("nvidia-smi"):
        advice = install_line("encoder")
        return Finding("device", "warn", "cpu: torch, which would use the GPU, is missing", advice)
    return Finding("device", "ok", device)


def examine_port(settings: Settings, fingerprint: str | None) -> Finding:
    """Check that the port is free, or used by a ready service with the same model.

    Args:
        settings: Host and port.
        fingerprint: The fingerprint of the settings' model, or None if it does not load.
    """
    subject = f"port {settings.port}"
    refused = _try_to_bind(settings.host, settings.port)
    if refused is None:
        return Finding(subject, "ok", "free")
    if refused.errno != errno.EADDRINUSE:
        found = f"cannot listen on {settings.host}: {refused.strerror}"
        return Finding(subject, "fail", found, "set TURNWISE_HOST or TURNWISE_PORT")
    try:
        with Client(local_url(settings.host, settings.port), timeout=2.0, deadline=2.0) as client:
            version = client.version()
            client.ready()
    except UnavailableError as error:
        advice = "wait if it is loading pools; else see the checks above and its log"
        return Finding(subject, "fail", f"a service that is not ready: {error.detail}", advice)
    except ClientError:
        advice = "stop that program, or set TURNWISE_PORT"
        return Finding(subject, "fail", "another program has it", advice)
    if fingerprint is not None and fingerprint != version.model.fingerprint:
        advice = "restart it to use the model of these settings"
        return Finding(
            subject, "warn", f"a service with another model: {version.model.name}", advice
        )
    return Finding(subject, "ok", f"a service {version.version}, ready")


def _examine_access(settings: Settings) -> Finding:
    if settings.keyed:
        try:
            keys = ApiKeys(settings, Metrics()).current or ()
        except SettingsError as error:
            return Finding("access", "fail", str(error), "correct the file, or unset the variable")
        return Finding("access", "ok", write_count(len(keys), "API key"))
    if settings.loopback:
        return Finding("access", "ok", "from this machine only, without keys")
    advice = "make a key for TURNWISE_API_KEYS with `turnwise key NAME`"
    return Finding("access", "warn", f"open to anybody who reaches {settings.host}", advice)


def _examine_data_folder(folder: Path, *, private_redis: bool) -> Finding:
    existing = find_nearest(folder)
    if not is_writable(existing):
        found = f"{existing} is not writable"
        if private_redis:
            return Finding("data folder", "fail", found, "set TURNWISE_DATA_DIR to another folder")
        # The images are like this: the shipped model needs no export.
        kept = "exported models are read, trained indexes are not kept"
        return Finding("data folder", "ok", f"{found}: {kept}")
    free = shutil.disk_usage(existing).free
    found = f"{folder}, {free / 2**30:.1f} GB free"
    if free < _ROOM:
        return Finding("data folder", "warn", found, "free space for the private Redis")
    return Finding("data folder", "ok", found)


def _examine_default_pool(file: Path, most: int) -> Finding:
    try:
        count = len(read_candidates(file, most))
    except (DataError, NotEnoughMemory) as error:
        return Finding("default pool", "fail", str(error), "correct TURNWISE_DEFAULT_POOL's file")
    return Finding("default pool", "ok", f"{write_count(count, 'candidate')} in {file}")


def _examine_model_folder(subject: str, folder: Path) -> Finding:
    if folder.is_dir():
        return Finding(subject, "ok", str(folder))
    advice = f"correct or unset TURNWISE_{subject.upper()}"
    return Finding(subject, "fail", f"folder {folder} does not exist", advice)


def _examine_redaction(name: str) -> Finding:
    try:
        load_hook(name)
    except SettingsError as error:
        return Finding("redaction", "fail", str(error), "correct TURNWISE_REDACT")
    return Finding("redaction", "ok", f"by {name}")


def _examine_journal(folder: Path, *, is_redacted: bool) -> Finding:
    if not is_writable(find_nearest(folder)):
        advice = "set TURNWISE_JOURNAL to another folder"
        return Finding("journal", "fail", f"{folder} is not writable", advice)
    return Finding("journal", "ok", f"{folder}, {'redacted' if is_redacted else 'not redacted'}")


def _examine_traces() -> Finding:
    try:
        url = urlsplit(trace_endpoint())
    except TurnwiseError as error:
        return Finding("traces", "fail", str(error), "correct the variable")
    usual_port = 443 if url.scheme == "https" else 80
    address = (url.hostname or "", url.port or usual_port)
    try:
        socket.create_connection(address, _PATIENCE).close()
    except (OSError, UnicodeError) as error:  # of a name that cannot be one
        found = f"{url.geturl()} does not answer: {error}"
        return Finding("traces", "warn", found, "set OTEL_EXPORTER_OTLP_ENDPOINT to a collector")
    return Finding("traces", "ok", f"sent to {url.geturl()}")


def _examine_threads(search: int) -> Finding:
    cores = usable_cores()
    found = f"{write_count(cores, 'core')}, {search} to search a pool"
    if search > cores:
        return Finding("threads", "warn", found, f"set TURNWISE_SEARCH_THREADS to {cores} or fewer")
    return Finding("threads", "ok", found)


def _try_to_bind(host: str, port: int) -> OSError | None:
    """Return the error of binding to a port, or None if it is free."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            return error
    return None
