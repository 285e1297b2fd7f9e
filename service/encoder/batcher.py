"""The texts that wait for the encoder, by priority, and the next batch of them."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from turnwise.models.arrays import Float32
from turnwise.models.roles import RoleText
from turnwise.service.observe.logs import request_id
from turnwise.service.observe.metrics import Lane, Metrics

_WINDOW = 256
"""Texts at the head of the queue that a batch is chosen from."""
_SLICE = 32
"""Texts that are tokenized at once."""


class Priority(IntEnum):
    """The order in which texts are encoded, most urgent first."""

    TURN = 0
    """An utterance that a client waits for."""
    LIST = 1
    """Candidates and goals that a client waits for."""
    IDLE = 2
    """Texts that the next turn will need."""
    BULK = 3
    """Uploads. They need no limit, since an upload waits for each part before it sends the next."""

    @property
    def lane(self) -> Lane:
        """The lane, by which metrics count."""
        return _LANES[self]


_LANES: dict[Priority, Lane] = {
    Priority.TURN: "critical",
    Priority.LIST: "critical",
    Priority.IDLE: "idle",
    Priority.BULK: "bulk",
}


@dataclass(eq=False, slots=True)
class EncodingRequest:
    """Texts to encode together, and their vectors so far."""

    texts: Sequence[RoleText]
    priority: Priority
    answer: asyncio.Future[Float32]
    vectors: Float32
    """(n, d); rows are filled in as batches return."""
    deadline: float = math.inf
    queued_at: float = field(default_factory=time.monotonic)
    request_id: str | None = field(default_factory=lambda: request_id.get(None))
    """Id of the HTTP request, for log lines of other threads."""
    encoded: int = 0
    failed: bool = False

    @property
    def abandoned(self) -> bool:
        """Whether nothing waits for the vectors any more."""
        return self.failed or self.answer.done() or self.expired

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline < time.monotonic()


@dataclass(eq=False, slots=True)
class TextSlice:
    """Some texts of a request, to be tokenized at once."""

    request: EncodingRequest
    start: int

    @property
    def texts(self) -> Sequence[RoleText]:
        """At most `_SLICE` texts."""
        return self.request.texts[self.start : self.start + _SLICE]


@dataclass(eq=False, slots=True)
class TokenizedText:
    """The tokens of one text of a request."""

    request: EncodingRequest
    place: int
    tokens: list[int]


Batch = list[TokenizedText]


class Batcher:
    """Texts by priority, each in order of arrival: first raw, then tokenized.

    It is not thread-safe: callers hold a lock.
    """

    def __init__(self, metrics: Metrics, max_tokens: int) -> None:
        """Start empty.

        Args:
            metrics: Counts waiting texts by lane, and dropped ones.
            max_tokens: Limit for the tokens of a batch, padding included.
        """
        self._metrics, self._max_tokens = metrics, max_tokens
        self._sizes = dict.fromkeys(Priority, 0)
        self._tokenizing = dict.fromkeys(Priority, 0)
        self._slices: list[deque[TextSlice]] = [deque() for _ in Priority]
        self._tokenized: list[deque[TokenizedText]] = [deque() for _ in Priority]

    @property
    def size(self) -> int:
        """Number of waiting texts, including those that are being tokenized."""
        return sum(self._sizes.values())

    def ahead_of(self, priority: Priority) -> int:
        """Return the number of texts that go before a new one; lower priorities do not count."""
        return sum(self._sizes[other] for other in Priority if other <= priority)

    @property
    def oldest_seconds(self) -> float:
        """Age of the oldest text in the critical lane; 0 if there is none."""
        critical = [priority for priority in Priority if priority.lane == "critical"]
        waiting = [queue for p in critical for queue in (self._slices[p], self._tokenized[p])]
        heads = [queue[0].request.queued_at for queue in waiting if queue]
        return time.monotonic() - min(heads) if heads else 0.0

    def add(self, request: EncodingRequest) -> None:
        """Append a request to those of its priority."""
        self._resize(request.priority, len(request.texts))
        starts = range(0, len(request.texts), _SLICE)
        self._slices[request.priority].extend(TextSlice(request, start) for start in starts)

    def next_work(self) -> Batch | TextSlice | None:
        """Return the next batch to run, or texts that must be tokenized before it.

        Returns None if nothing waits, or if the other thread is tokenizing more urgent texts: that
        takes less time than a batch of less urgent ones.
        """
        for priority in Priority:
            if work := self._next_batch(priority) or self._next_slice(priority):
                return work
            if self._tokenizing[priority]:
                return None
        return None

    def next_slice(self) -> TextSlice | None:
        """Return the next texts to tokenize."""
        return next(filter(None, map(self._next_slice, Priority)), None)

    def add_tokens(self, part: TextSlice, tokens: Sequence[list[int]]) -> None:
        """Append the texts of a slice, which are tokenized now."""
        self._tokenizing[part.request.priority] -= 1
        self._tokenized[part.request.priority].extend(
            TokenizedText(part.request, part.start + n, ids) for n, ids in enumerate(tokens)
        )

    def drop(self, part: TextSlice) -> None:
        """Drop the texts of a slice, which could not be tokenized."""
        self._tokenizing[part.request.priority] -= 1
        self._resize(part.request.priority, -len(part.texts))

    def clear(self) -> set[EncodingRequest]:
        """Drop all texts; return their requests."""
        left = {part.request for slices in self._slices for part in slices}
        left |= {text.request for texts in self._tokenized for text in texts}
        for priority in Priority:
            self._slices[priority].clear()
            self._tokenized[priority].clear()
            self._resize(priority, -self._sizes[priority])
        return left

    def _next_slice(self, priority: Priority) -> TextSlice | None:
        waiting = self._slices[priority]
        while waiting:
            part = waiting.popleft()
            if not part.request.abandoned:
                self._tokenizing[priority] += 1
                return part
            self._count_dropped(part.request, len(part.texts))
        return None

    def _next_batch(self, priority: Priority) -> Batch:
        """Return the oldest text, and of those behind it the ones that are closest in length.

        Every batch contains the oldest text, so no length starves.
        """
        waiting = self._tokenized[priority]
        while waiting and waiting[0].request.abandoned:
            self._count_dropped(waiting.popleft().request, 1)
        if not waiting:
            return []
        first, *others = (waiting[n] for n in range(min(len(waiting), _WINDOW)))
        batch, length = [first], len(first.tokens)
        longest = length
        for text in sorted(others, key=lambda text: abs(len(text.tokens) - length)):
            longest = max(longest, len(text.tokens))
            if (len(batch) + 1) * longest > self._max_tokens:
                break
            if not text.request.abandoned:
                batch.append(text)
        taken = set(map(id, batch))
        self._tokenized[priority] = deque(text for text in waiting if id(text) not in taken)
        self._resize(priority, -len(batch))
        return batch

    def _count_dropped(self, request: EncodingRequest, texts: int) -> None:
        self._resize(request.priority, -texts)
        if not request.failed:
            reason = "deadline" if request.expired else "cancelled"
            self._metrics.dropped_texts.labels(reason).inc(texts)

    def _resize(self, priority: Priority, change: int) -> None:
        self._sizes[priority] += change
        self._metrics.queue_texts.labels(priority.lane).inc(change)
