"""The redaction hook: your function, which removes from texts what must not be kept or sent."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import cast

from turnwise.service.settings import SettingsError

Hook = Callable[[str], str]


def load_hook(name: str) -> Hook:
    """Return the function that `package.module:function` names.

    The module may be in the current folder.

    Raises:
        SettingsError: It cannot be loaded.
    """
    module, _, function = name.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        hook = getattr(import_module(module), function)
    except Exception as error:  # a module of somebody else's may raise anything
        raise SettingsError(f"TURNWISE_REDACT '{name}' cannot be loaded: {error}") from error
    if not callable(hook):
        raise SettingsError(f"TURNWISE_REDACT '{name}' is not a function")
    return cast(Hook, hook)


def redact_text(text: str, hook: Hook) -> str:
    """Return the redacted text.

    Raises:
        TypeError: The hook returned no text.
        Exception: Whatever the hook raises.
    """
    value: object = hook(text)
    if not isinstance(value, str):
        raise TypeError(f"the redaction hook returned {type(value).__name__}, not a text")
    return value
