"""The milliseconds of each stage of one answer (its field `timings_ms`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from turnwise.service.observe.metrics import Metrics, Stage
from turnwise.service.observe.tracing import exemplar, span


class Timings:
    """Adds up the milliseconds of each stage. A stage may be entered several times."""

    def __init__(self, metrics: Metrics, *stages: str) -> None:
        self._metrics = metrics
        self._begin = perf_counter()
        self._milliseconds = dict.fromkeys(stages, 0.0)

    @contextmanager
    def stage(self, name: str, metric: Stage | None = None) -> Iterator[None]:
        """Time and trace a stage; with `metric`, also observe it in `turnwise_stage_seconds`."""
        begin = perf_counter()
        try:
            with span(name):
                yield
        finally:
            seconds = perf_counter() - begin
            self._milliseconds[name] += seconds * 1e3
            if metric:
                self._metrics.stage_seconds.labels(metric).observe(seconds, exemplar())

    def milliseconds(self) -> dict[str, float]:
        """Return the milliseconds of each stage so far, and `total` since the beginning."""
        total = (perf_counter() - self._begin) * 1e3
        return {
            name: round(value, 3) for name, value in (self._milliseconds | {"total": total}).items()
        }
