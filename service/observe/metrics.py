"""The metrics that Prometheus scrapes. Every series exists from the start, so rates begin at 0."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from time import perf_counter
from typing import Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
)

from turnwise.models.roles import Role
from turnwise.service.observe.tracing import exemplar

Stage = Literal[
    "queue", "tokenize", "encode", "session_read", "session_write", "search", "rerank", "plan"
]
Lane = Literal["critical", "rerank", "idle", "bulk"]
"""A request waits for critical texts and for pairs to re-rank, an upload for bulk texts, and nobody
for idle texts."""
Rejected = Literal[
    "queue_full",
    "draining",
    "body_too_large",
    "unauthenticated",
    "forbidden",
    "host_not_allowed",
    "request_rate",
    "uploads",
    "pools",
    "pools_bytes",
    "aliases",
    "sessions",
]
"""The last six are limits of a namespace."""
Dropped = Literal["cancelled", "deadline"]
Operation = Literal[
    "session_read",
    "session_write",
    "session_fill",
    "session_feedback",
    "session_delete",
    "session_list",
    "pool_read",
    "pool_write",
    "probe",
]
"""`session_fill` adds the [B1] vector that was encoded after the answer; `probe` is the write that
readiness waits for."""
StoreOperation = Literal[
    "create", "drop", "upsert", "flush", "remove", "search", "fetch", "scan", "count", "ping"
]
Call = Literal["ok", "retried", "failed"]
"""The result of a call of the remote encoder; each try of a call counts."""
Unwritten = Literal["queue_full", "not_redacted", "disk"]
"""Why a line of the journal was not written."""
Result = Literal["ok", "conflict", "replayed", "unavailable", "cancelled", "failed"]
"""An operation is cancelled when its client leaves or its deadline passes."""
Lost = Literal["database", "session", "pool"]
"""Everything, or a part of a session or pool, as when Redis evicts keys."""
ReplicaPoolState = Literal["ready", "behind", "loading", "encoding", "damaged", "other_model"]
"""A pool is behind while an older version is served because the newest cannot be read."""

TurnOutcome = Literal["answered", "abstained", "empty"]
"""The outcome of a turn that asks for candidates; `empty`: none may be offered."""

ChatSource = Literal["candidate", "text", "service", "none", "failed"]
"""The source of the answer of a chat completion: a candidate, the fallback text of the pool, the
fallback service, or none of them. `failed` counts calls of that service."""

MatchKind = Literal["example", "text"]
"""Whether one of its examples found a candidate, or its own text."""

CascadeOutcome = Literal["reranked", "failed"]
"""What the model's own re-ranker did for a turn whose first candidate was not sure. `failed`: it
was overloaded, too late or broken, and the turn was answered without it."""

Age = Callable[[], float]
"""Returns seconds."""

ANY_ROLE = "any"
"""The role of texts that arrive as the model reads them."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_RECIPROCAL_RANKS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Ranks 20, 10, 5, 2 and 1: above 0.5, the first candidate was chosen."""
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)
_TOKENS = (16, 64, 256, 1024, 4096, 16384)


class Metrics:
    """The metrics of one service, in their own registry: a process may hold two services."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counter = partial(Counter, registry=self.registry)
        self._gauge = partial(Gauge, registry=self.registry)
        self._histogram = partial(Histogram, registry=self.registry)
        self._oldest: list[Age] = []
        self._running: list[Age] = []
        self._add_requests()
        self._add_encoder()
        self._add_stores()
        self._add_selection()
        self._add_pools()
        self._add_process()
        self._create_series()

    def _add_requests(self) -> None:
        self.requests = self._counter(
            "turnwise_requests", "HTTP requests answered.", ["method", "route", "status"]
        )
        self.request_seconds = self._histogram(
            "turnwise_request_seconds",
            "Seconds from a request to its answer.",
            ["method", "route"],
            buckets=_SECONDS,
        )
        self.stage_seconds = self._histogram(
            "turnwise_stage_seconds",
            "Seconds that one stage of a request took.",
            ["stage"],
            buckets=_SECONDS,
        )
        self.rejected_requests = self._counter(
            "turnwise_rejected_requests", "Requests rejected before any work.", ["reason"]
        )
        self.api_keys_stale = self._gauge(
            "turnwise_api_keys_stale",
            "1 while TURNWISE_API_KEYS_FILE cannot be read and its last good keys hold, else 0.",
        )

    def _add_encoder(self) -> None:
        self.queue_texts = self._gauge(
            "turnwise_queue_texts",
            "Texts that wait in the encoder queue; those of the lane rerank are pairs.",
            ["lane"],
        )
        self.queue_oldest_seconds = self._gauge(
            "turnwise_queue_oldest_seconds",
            "Age of the oldest text in the critical lane of the encoder queue.",
        )
        self.dropped_texts = self._counter(
            "turnwise_dropped_texts", "Texts removed from the encoder queue unencoded.", ["reason"]
        )
        self.batch_texts = self._histogram(
            "turnwise_batch_texts", "Texts in a batch of the encoder.", buckets=_TEXTS
        )
        self.batch_tokens = self._histogram(
            "turnwise_batch_tokens",
            "Tokens in a batch of the encoder, padding included.",
            buckets=_TOKENS,
        )
        self.batch_running_seconds = self._gauge(
            "turnwise_batch_running_seconds",
            "Age of the batch that the encoder runs now; 0 when idle, +Inf when a thread has died.",
        )
        self.batch_failures = self._counter(
            "turnwise_batch_failures", "Batches that the encoder failed on."
        )
        self.encoded_texts = self._counter(
            "turnwise_encoded_texts", "Texts that the encoder encoded.", ["role", "lane"]
        )
        self.encoder_calls = self._counter(
            "turnwise_encoder_calls", "Calls of the remote encoder.", ["result"]
        )
        self.cache_hits = self._counter(
            "turnwise_vector_cache_hits", "Texts whose vector was in the encoder's cache."
        )

    def _add_stores(self) -> None:
        self.redis_operations = self._counter(
            "turnwise_redis_operations", "Operations on Redis.", ["operation", "result"]
        )
        self.redis_losses = self._counter(
            "turnwise_redis_losses", "Times that Redis was found to have lost data.", ["what"]
        )
        self.redis_may_evict = self._gauge(
            "turnwise_redis_may_evict", "1 if Redis may evict sessions and pools, else 0."
        )
        self.redis_memory_ratio = self._gauge(
            "turnwise_redis_memory_ratio",
            "Memory that Redis uses, as a part of its maxmemory; 0 without maxmemory.",
        )
        self.store_seconds = self._histogram(
            "turnwise_store_seconds",
            "Seconds that a call of the candidate store took.",
            ["store", "operation", "result"],
            buckets=_SECONDS,
        )
        self.journal_lines = self._counter(
            "turnwise_journal_lines", "Lines written to the journal."
        )
        self.journal_lines_lost = self._counter(
            "turnwise_journal_lines_lost", "Lines that the journal lacks.", ["reason"]
        )

    def _add_selection(self) -> None:
        self.sessions_created = self._counter("turnwise_sessions_created", "Sessions created.")
        self.turns = self._counter(
            "turnwise_turns", "Turns that asked for candidates.", ["namespace", "pool", "outcome"]
        )
        self.truncated_turns = self._counter(
            "turnwise_truncated_turns",
            "Turns whose utterance was longer than what the model reads.",
            ["namespace"],
        )
        self.matched = self._counter(
            "turnwise_matched",
            "Turns with candidates, by what found the first one.",
            ["namespace", "pool", "kind"],
        )
        self.cascades = self._counter(
            "turnwise_cascades",
            "Turns whose first candidate was not sure, by what the model's own re-ranker did.",
            ["namespace", "pool", "outcome"],
        )
        self.chat_completions = self._counter(
            "turnwise_chat_completions",
            "Chat completions, by where the answer comes from; and failed calls of the fallback.",
            ["namespace", "pool", "source"],
        )
        self.feedback = self._counter(
            "turnwise_feedback",
            "Events of feedback on offered candidates.",
            ["namespace", "pool", "model", "event"],
        )
        self.chosen_reciprocal_rank = self._histogram(
            "turnwise_chosen_reciprocal_rank",
            "1 / rank of the candidates that were chosen or edited: its mean is the MRR.",
            ["namespace", "pool", "model"],
            buckets=_RECIPROCAL_RANKS,
        )

    def _add_pools(self) -> None:
        self.pools = self._gauge("turnwise_pools", "Pools on this replica, by state.", ["state"])
        self.missing_pools = self._gauge(
            "turnwise_missing_pools",
            "Pools and aliases that Redis lost, until they are back or somebody deletes them.",
        )
        self.pool_candidates = self._gauge(
            "turnwise_pool_candidates", "Candidates in a pool.", ["namespace", "pool"]
        )
        self.pool_version = self._gauge(
            "turnwise_pool_version", "Version of a pool on this replica.", ["namespace", "pool"]
        )

    def _add_process(self) -> None:
        self.ready = self._gauge("turnwise_ready", "1 while /readyz answers 200, else 0.")
        self.event_loop_tasks = self._gauge("turnwise_event_loop_tasks", "Tasks of the event loop.")
        self.build = Info(
            "turnwise_build", "Version of Turnwise and name of the model.", registry=self.registry
        )
        ProcessCollector(registry=self.registry)  # memory, processor time, file descriptors

    def watch_queue(self, oldest: Age, running: Age) -> None:
        """Report the ages of a queue's oldest text and running batch; of several, the largest."""
        self._oldest.append(oldest)
        self._running.append(running)
        self.queue_oldest_seconds.set_function(lambda: max(age() for age in self._oldest))
        self.batch_running_seconds.set_function(lambda: max(age() for age in self._running))

    def forget_pool(self, namespace: str, pool: str) -> None:
        """Remove the series of a pool."""
        for gauge in (self.pool_candidates, self.pool_version):
            gauge.remove(namespace, pool)
        for metric in (
            self.turns,
            self.matched,
            self.cascades,
            self.chat_completions,
            self.feedback,
            self.chosen_reciprocal_rank,
        ):
            metric.remove_by_labels({"namespace": namespace, "pool": pool})

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[None]:
        """Time a stage, even if it fails."""
        begin = perf_counter()
        try:
            yield
        finally:
            self.stage_seconds.labels(stage).observe(perf_counter() - begin, exemplar())

    def _create_series(self) -> None:
        for metric, values in (
            (self.stage_seconds, Stage),
            (self.queue_texts, Lane),
            (self.rejected_requests, Rejected),
            (self.dropped_texts, Dropped),
            (self.encoder_calls, Call),
            (self.redis_losses, Lost),
            (self.journal_lines_lost, Unwritten),
            (self.pools, ReplicaPoolState),
        ):
            for value in get_args(values):
                metric.labels(value)
        encoded = [role for role in Role if role is not Role.SUPPOSED]  # which heads estimate
        for role, lane in product((*encoded, ANY_ROLE), get_args(Lane)):
            if lane != "rerank":  # a pair has no role
                self.encoded_texts.labels(role, lane)
        for operation, result in product(get_args(Operation), get_args(Result)):
            self.redis_operations.labels(operation, result)
