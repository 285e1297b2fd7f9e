"""What Prometheus scrapes: every series exists from the start, so that no rate lacks its zero."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from time import perf_counter
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from turnwise.models.roles import Role

Stage = Literal[
    "queue", "tokenize", "encode", "state_read", "state_write", "search", "rerank", "plan"
]
Lane = Literal["critical", "idle", "bulk"]
"""The label `path`: whether a request waits for an encoding, nobody does, or an upload does."""
Rejected = Literal["queue_full", "draining", "body_too_large", "unauthenticated", "forbidden"]
Dropped = Literal["cancelled", "deadline"]
Operation = Literal["read", "commit", "put_first", "delete", "pool_read", "pool_commit"]
Result = Literal["ok", "conflict", "replayed", "unavailable", "failed"]
Lost = Literal["database", "session", "pool"]
"""All that was in Redis, or a part of a session or of a pool, as where it evicts keys."""
PoolState = Literal["ready", "behind", "loading", "encoding", "damaged"]
"""Behind: an older version is served, since the newest could not be read."""

Age = Callable[[], float]
"""In seconds."""

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128)
_TOKENS = (16, 64, 256, 1024, 4096, 16384)


class Metrics:
    """The service's metrics, in a registry of their own: two services may live in one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "turnwise_requests",
            "Requests answered",
            ["method", "route", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "turnwise_request_seconds", "Time to answer", ["method", "route"],
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.stage_seconds = Histogram(
            "turnwise_stage_seconds", "Time of a stage on a request's way", ["stage"],
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.queue_depth = Gauge(
            "turnwise_queue_depth", "Texts that wait for the encoder", ["path"], registry=registry
        )
        self.queue_oldest_seconds = Gauge(
            "turnwise_queue_oldest_seconds", "Age of the oldest text that a client waits for",
            registry=registry,
        )  # fmt: skip
        self.batch_items = Histogram(
            "turnwise_batch_items", "Texts of a batch", buckets=_ITEMS, registry=registry
        )
        self.batch_tokens = Histogram(
            "turnwise_batch_tokens", "Tokens of a padded batch", buckets=_TOKENS, registry=registry
        )
        self.batch_running_seconds = Gauge(
            "turnwise_batch_running_seconds", "Age of the batch on the device", registry=registry
        )
        self.batch_failures = Counter(
            "turnwise_batch_failures", "Batches that the encoder failed on", registry=registry
        )
        self.encoded = Counter(
            "turnwise_encoded", "Utterances encoded", ["role", "path"], registry=registry
        )
        self.cache_hits = Counter(
            "turnwise_vector_cache_hits", "Vectors found in memory", registry=registry
        )
        self.rejected = Counter(
            "turnwise_rejected", "Requests turned away", ["reason"], registry=registry
        )
        self.dropped = Counter(
            "turnwise_dropped", "Texts dropped before they were encoded", ["reason"],
            registry=registry,
        )  # fmt: skip
        self.state_operations = Counter(
            "turnwise_state_operations", "Operations on Redis", ["operation", "result"],
            registry=registry,
        )  # fmt: skip
        self.state_lost = Counter(
            "turnwise_state_lost", "What Redis was found to have lost", ["what"], registry=registry
        )
        self.redis_evicts = Gauge(
            "turnwise_redis_evicts", "1 where Redis may drop keys to make room", registry=registry
        )
        self.sessions_created = Counter(
            "turnwise_sessions_created", "Sessions created", registry=registry
        )
        self.pool_vectors = Gauge(
            "turnwise_pool_vectors", "Candidates of a pool", ["namespace", "pool"],
            registry=registry,
        )  # fmt: skip
        self.pool_version = Gauge(
            "turnwise_pool_version", "Version of a pool", ["namespace", "pool"], registry=registry
        )
        self.pools = Gauge("turnwise_pools", "Pools by state", ["state"], registry=registry)
        self.ready = Gauge("turnwise_ready", "1 while /readyz says yes", registry=registry)
        self.tasks = Gauge("turnwise_tasks", "Tasks of the event loop", registry=registry)
        self.build = Info("turnwise_build", "Version and model", registry=registry)
        self._waiting: list[Age] = []
        self._running: list[Age] = []
        self._create_series()

    def watch_queue(self, waiting: Age, running: Age) -> None:
        """Take what tells, of one more queue, the ages of its oldest text and of its batch."""
        self._waiting.append(waiting)
        self._running.append(running)
        self.queue_oldest_seconds.set_function(lambda: max(age() for age in self._waiting))
        self.batch_running_seconds.set_function(lambda: max(age() for age in self._running))

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[None]:
        """Time a stage, also one that fails."""
        begin = perf_counter()
        try:
            yield
        finally:
            self.stage_seconds.labels(stage).observe(perf_counter() - begin)

    def _create_series(self) -> None:
        for stage in get_args(Stage):
            self.stage_seconds.labels(stage)
        for lane in get_args(Lane):
            self.queue_depth.labels(lane)
        for role, lane in product(Role, get_args(Lane)):
            self.encoded.labels(role, lane)
        for metric, values in (
            (self.rejected, Rejected),
            (self.dropped, Dropped),
            (self.state_lost, Lost),
            (self.pools, PoolState),
        ):
            for value in get_args(values):
                metric.labels(value)
        for operation, result in product(get_args(Operation), get_args(Result)):
            self.state_operations.labels(operation, result)
