"""The API keys of a service: those of the settings, and those of a file that may change."""

import asyncio
import logging
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings, SettingsError
from turnwise.service.wire.keys import ApiKey

_SECONDS = 1.0
"""Seconds after which the file is read again."""
_KEYS = TypeAdapter(tuple[ApiKey, ...])

_log = logging.getLogger("turnwise.keys")


class ApiKeys:
    """The API keys in force."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Read the file of the settings, if they name one.

        Raises:
            SettingsError: The file cannot be read, or holds something else.
        """
        self._given, self._file = settings.api_keys, settings.api_keys_file
        self._stale = metrics.api_keys_stale
        self._read = read_keys(self._file) if self._file else ()
        self._wrong = ""

    @property
    def current(self) -> tuple[ApiKey, ...] | None:
        """The keys, also those that have expired; None if the service takes none."""
        return (*self._given, *self._read) if self._given or self._file else None

    async def follow(self) -> None:
        """Read the file again and again. While that fails, the last good keys stay in force."""
        while self._file:
            await asyncio.sleep(_SECONDS)
            await asyncio.to_thread(self._read_again, self._file)

    def _read_again(self, file: Path) -> None:
        try:
            read, wrong = read_keys(file), ""
        except SettingsError as error:
            read, wrong = self._read, str(error)
        if wrong and wrong != self._wrong:
            _log.error("%s; the keys that were read before stay in force", wrong)
        elif read != self._read:
            _log.info("read %d API keys of %s", len(read), file)
        self._read, self._wrong = read, wrong
        self._stale.set(bool(wrong))


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
        first = error.errors(include_input=False)[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    else:
        if len({key.sha256 for key in keys}) == len(keys):
            return keys
        why = "lists a key twice"
    raise SettingsError(f"TURNWISE_API_KEYS_FILE {file}: {why}")
