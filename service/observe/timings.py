"""How long the stages of one answer took."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from turnwise.service.observe.tracing import tracer


class Timings:
    """Adds up the milliseconds of each stage; a stage may come more than once."""

    def __init__(self, *stages: str) -> None:
        self._begin = perf_counter()
        self._milliseconds = dict.fromkeys(stages, 0.0)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a part of a stage, and trace it."""
        begin = perf_counter()
        try:
            with tracer.start_as_current_span(
                name, record_exception=False, set_status_on_exception=False
            ):
                yield
        finally:
            self._milliseconds[name] += (perf_counter() - begin) * 1e3

    def milliseconds(self) -> dict[str, float]:
        """Return the stages so far, and the total since the beginning."""
        total = (perf_counter() - self._begin) * 1e3
        return {
            name: round(value, 3) for name, value in (self._milliseconds | {"total": total}).items()
        }
