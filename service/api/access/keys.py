"""Checks API keys: who holds the key of a request, and what the holder may do (401, 403)."""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from turnwise.models.errors import first_error
from turnwise.service.errors import Forbidden, Unauthenticated
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings, SettingsError
from turnwise.service.wire import DEFAULT_NAMESPACE
from turnwise.service.wire.keys import ApiKey, Scope

_KEYS = TypeAdapter(tuple[ApiKey, ...])

_log = logging.getLogger("turnwise.keys")


class ApiKeys:
    """The API keys in force."""

    def __init__(self, settings: Settings, metrics: Metrics, *, seconds: float = 1.0) -> None:
        """Read the file of the settings, if they name one.

        Args:
            settings: The keys, or the file that holds them.
            metrics: Says whether the file could be read.
            seconds: Seconds after which the file is read again.

        Raises:
            SettingsError: The file cannot be read, or holds something else.
        """
        self._of_settings = settings.api_keys
        self._file = settings.api_keys_file
        self._seconds = seconds
        self._stale = metrics.api_keys_stale
        self._of_file = read_keys(self._file) if self._file else ()
        self._last_error = ""

    @property
    def current(self) -> tuple[ApiKey, ...] | None:
        """The keys, also those that have expired; None if the service takes none."""
        if not (self._of_settings or self._file):
            return None
        return (*self._of_settings, *self._of_file)

    async def follow(self) -> None:
        """Read the file again and again. While that fails, the last good keys stay in force."""
        while self._file:
            await asyncio.sleep(self._seconds)
            await asyncio.to_thread(self._read_again, self._file)

    def _read_again(self, file: Path) -> None:
        try:
            keys = read_keys(file)
        except SettingsError as error:
            if str(error) != self._last_error:
                _log.error("%s; the keys that were read before stay in force", error)
            self._last_error = str(error)
            self._stale.set(1)
            return
        if keys != self._of_file:
            _log.info("read %d API keys of %s", len(keys), file)
        self._of_file = keys
        self._last_error = ""
        self._stale.set(0)


def read_keys(file: Path) -> tuple[ApiKey, ...]:
    """Return the keys of a file, which holds JSON as `TURNWISE_API_KEYS` does.

    Raises:
        SettingsError: The file cannot be read, or holds something else. The error does not quote
            it, as somebody may have written a key into it.
    """
    try:
        keys = _KEYS.validate_json(file.read_bytes())
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
    except ValidationError as error:
        why = first_error(error)
    else:
        if len({key.sha256 for key in keys}) == len(keys):
            return keys
        why = "lists a key twice"
    raise SettingsError(f"TURNWISE_API_KEYS_FILE {file}: {why}")


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of an API key."""

    key: str | None
    """The name of the key; None if the service has no keys."""
    scopes: frozenset[Scope]

    @property
    def namespace(self) -> str:
        """The namespace of the key."""
        return self.key or DEFAULT_NAMESPACE


_ANYBODY = Caller(None, frozenset({"select", "pools"}))


def identify(keys: Sequence[ApiKey] | None, secret: str | None) -> Caller:
    """Return the holder of a key. All keys are compared, so that the time reveals nothing.

    Args:
        keys: The keys of the service; None if it takes none.
        secret: The key that the caller sent.

    Raises:
        Unauthenticated: The service has API keys, and this is not one of them, or has expired.
    """
    if keys is None:
        return _ANYBODY
    if secret is None:
        raise Unauthenticated("send an API key: Authorization: Bearer KEY")
    digest = hashlib.sha256(secret.encode()).hexdigest()
    matches = [key for key in keys if hmac.compare_digest(key.sha256, digest)]
    if not matches:
        raise Unauthenticated("the API key is unknown")
    now = datetime.now(UTC)
    valid = [key for key in matches if key.expires is None or key.expires > now]
    if not valid:
        raise Unauthenticated(f"the API key expired at {matches[0].expires}")
    return Caller(valid[0].name, valid[0].scopes)


def authorize(caller: Caller, scopes: Sequence[Scope], namespace: str) -> None:
    """Check that the caller may act in a namespace.

    Args:
        caller: The holder of the key.
        scopes: The caller needs one of these.
        namespace: With the scope `admin` any, else the caller's own.

    Raises:
        Forbidden: The caller lacks a scope.
    """
    if "admin" in caller.scopes:
        return
    if caller.scopes.isdisjoint(scopes):
        raise Forbidden(f"this needs an API key with the scope '{scopes[0]}'")
    if namespace != caller.namespace:
        raise Forbidden("another namespace needs an API key with the scope 'admin'")
