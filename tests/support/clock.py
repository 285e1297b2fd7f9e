"""Moves the clock of the services in this process, but not that of their Redis."""

import sys
import time
from collections.abc import Hashable
from typing import Any

import pytest


def move_clock(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the service see a time that differs from Redis's; `patch` undoes it."""
    clocks: dict[Any, Any] = {
        time.time: lambda now=time.time: now() + seconds,
        time.time_ns: lambda now=time.time_ns: now() + int(seconds * 1e9),
    }
    for name, module in list(sys.modules.items()):
        for attribute in ("time", "time_ns"):
            clock = vars(module).get(attribute) if name.startswith("turnwise.service.") else None
            if isinstance(clock, Hashable) and clock in clocks:
                patch.setattr(module, attribute, clocks[clock])
    for clock, moved in clocks.items():
        patch.setattr(time, clock.__name__, moved)
