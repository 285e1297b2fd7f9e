"""Answers about the process: whether it is alive and ready, its version and its limits."""

from collections.abc import Sequence

from turnwise.service.wire.fields import Value


class Alive(Value):
    """The process answers requests."""

    alive: bool = True


class Ready(Value):
    """Every check passed."""

    ready: bool
    checks: dict[str, bool]
    warnings: Sequence[str] = ()
    """What is wrong although the service can serve, such as pools that Redis lost."""


class ModelFacts(Value):
    """The loaded model and its runtime."""

    name: str
    fingerprint: str
    kind: str
    dimension: int
    aggregation: str
    """Default aggregation, from the model card."""
    runtime: str
    """Library, arithmetic and device that run the model."""
    device: str | None = None
    """Type of the device, such as `cpu` or `cuda`; `remote` with an encoder tier."""
    threads: int | None = None
    """Threads that compute a batch on a CPU; null on other devices."""


class Version(Value):
    """The running release, its model and its limits."""

    version: str
    python: str
    model: ModelFacts
    limits: dict[str, int | float]
