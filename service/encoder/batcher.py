"""Chooses the next batch: the waiting texts by priority, within a budget of tokens."""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence, Sized
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain, islice

from opentelemetry.trace import INVALID_SPAN, Span, get_current_span

from turnwise.models.arrays import Float32
from turnwise.models.rerankers.pairs import Pair
from turnwise.models.roles import RoleText
from turnwise.service.current_request import namespace
from turnwise.service.encoder.model import Model
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
    CASCADE = 2
    """Pairs of a context and a candidate, for the model's own re-ranker: a few for a turn."""
    RERANK = 3
    """Such pairs for the re-ranker that a request names: its whole short list."""
    IDLE = 4
    """Texts that the next turn will need."""
    BULK = 5
    """Uploads. They need no limit, since an upload waits for each part before it sends the next."""

    @property
    def lane(self) -> Lane:
        """The lane, by which metrics count."""
        return _LANES[self]


_LANES: dict[Priority, Lane] = {
    Priority.TURN: "critical",
    Priority.LIST: "critical",
    Priority.CASCADE: "rerank",
    Priority.RERANK: "rerank",
    Priority.IDLE: "idle",
    Priority.BULK: "bulk",
}
_URGENCY: tuple[Lane, ...] = ("critical", "rerank", "idle", "bulk")


@dataclass(eq=False, slots=True)
class EncodingRequest:
    """Texts to encode together, and their vectors so far."""

    model: Model
    """The model that encodes them; all requests of a priority have the same."""
    texts: Sequence[RoleText | str | Pair]
    priority: Priority
    answer: asyncio.Future[Float32]
    vectors: Float32
    """(n, d); rows are filled in as batches return."""
    deadline: float = math.inf
    queued_at: float = field(default_factory=time.monotonic)
    namespace: str = field(default_factory=lambda: namespace.get(""))
    """The namespace that the texts are encoded for."""
    context: Context = field(default_factory=copy_context)
    """The context of the HTTP request, for log lines of other threads."""
    span: Span = field(init=False, default=INVALID_SPAN)
    """The span of the HTTP request, for spans of other threads; an upload has none."""
    encoded: int = 0
    failed: bool = False

    def __post_init__(self) -> None:
        if self.priority is not Priority.BULK:
            self.span = get_current_span()

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
    def texts(self) -> Sequence[RoleText | str | Pair]:
        """At most `_SLICE` texts."""
        return self.request.texts[self.start : self.start + _SLICE]


@dataclass(eq=False, slots=True)
class TokenizedText:
    """The tokens of one text of a request."""

    request: EncodingRequest
    index: int
    """The index of the text in its request."""
    tokens: Sized


Batch = list[TokenizedText]


@dataclass(eq=False, slots=True)
class _Line:
    """The texts of one namespace and priority that wait, in order of arrival.

    Attributes:
        namespace: The namespace.
        priority: The priority.
        slices: Raw texts.
        tokenized: Texts that are tokenized already; they arrived before the slices.
        tokenizing: Number of slices that are being tokenized.
        size: Number of texts, including those that are being tokenized.
    """

    namespace: str
    priority: Priority
    slices: deque[TextSlice] = field(default_factory=deque)
    tokenized: deque[TokenizedText] = field(default_factory=deque)
    tokenizing: int = 0
    size: int = 0


class Batcher:
    """The texts that wait, and their order.

    More urgent lanes go first. In a lane the namespaces take turns: the next batch is for the one
    whose last batch is longest ago. So a namespace waits for at most one batch of each other one,
    however many texts the others send. The texts of one namespace go by priority, then in order of
    arrival.

    It is not thread-safe: callers hold a lock.
    """

    def __init__(self, metrics: Metrics, max_tokens: int) -> None:
        """Start empty.

        Args:
            metrics: Counts waiting texts by lane, and dropped ones.
            max_tokens: Limit for the tokens of a batch, padding included.
        """
        self._metrics = metrics
        self._max_tokens = max_tokens
        self._lines: dict[tuple[str, Priority], _Line] = {}
        self._batches = 0
        self._last_batch: dict[tuple[str, Lane], int] = {}
        """The number of the last batch of each namespace and lane; empty when nothing waits."""

    @property
    def size(self) -> int:
        """Number of waiting texts, including those that are being tokenized."""
        return sum(line.size for line in self._lines.values())

    @property
    def has_slices(self) -> bool:
        """Whether texts wait that nobody has begun to tokenize."""
        return any(line.slices for line in self._lines.values())

    def count_ahead(self, priority: Priority, namespace: str) -> Counter[Priority]:
        """Return how many texts of each priority go before a new text of a namespace.

        In a lane the namespaces alternate. So if this namespace has n texts waiting, at most n + 1
        of each other namespace go first.
        """
        ahead = Counter[Priority]()
        own_in_lane = 0
        others_in_lane = Counter[str]()
        for line in self._lines.values():
            is_own = line.namespace == namespace
            is_in_lane = line.priority.lane == priority.lane
            if is_in_lane and not is_own:
                others_in_lane[line.namespace] += line.size
                continue
            if line.priority > priority:
                continue
            ahead[line.priority] += line.size
            if is_in_lane:
                own_in_lane += line.size
        ahead[priority] += sum(min(size, own_in_lane + 1) for size in others_in_lane.values())
        return ahead

    @property
    def oldest_seconds(self) -> float:
        """Age of the oldest text in the critical lane; 0 if there is none."""
        lines = [line for line in self._lines.values() if line.priority.lane == "critical"]
        waiting = [queue for line in lines for queue in (line.slices, line.tokenized)]
        heads = [queue[0].request.queued_at for queue in waiting if queue]
        return time.monotonic() - min(heads) if heads else 0.0

    def add(self, request: EncodingRequest) -> None:
        """Append a request to those of its namespace and priority."""
        key = request.namespace, request.priority
        line = self._lines.setdefault(key, _Line(*key))
        self._resize(line, len(request.texts))
        starts = range(0, len(request.texts), _SLICE)
        line.slices.extend(TextSlice(request, start) for start in starts)

    def next_work(self) -> Batch | TextSlice | None:
        """Return the next batch to run, or the texts to tokenize before it.

        Returns:
            None if nothing waits, or only less urgent texts than those that the other thread
            tokenizes: waiting for these takes less time than a batch of less urgent ones.
        """
        least_urgent = max(Priority)
        for line in self._in_order():
            if line.priority > least_urgent:
                continue
            if work := self._next_batch(line) or self._next_slice(line):
                return work
            if line.tokenizing:
                least_urgent = line.priority
        return None

    def next_slice(self) -> TextSlice | None:
        """Return the next texts to tokenize."""
        for line in self._in_order():
            if part := self._next_slice(line):
                return part
        return None

    def add_tokens(self, part: TextSlice, tokens: Sequence[Sized]) -> None:
        """Append the texts of a slice with their tokens."""
        if line := self._find_line(part.request):
            line.tokenizing -= 1
            line.tokenized.extend(
                TokenizedText(part.request, part.start + n, ids) for n, ids in enumerate(tokens)
            )

    def drop(self, part: TextSlice) -> None:
        """Drop the texts of a slice, which could not be tokenized."""
        if line := self._find_line(part.request):
            line.tokenizing -= 1
            self._resize(line, -len(part.texts))

    def clear(self) -> set[EncodingRequest]:
        """Drop all texts; return their requests."""
        lines = list(self._lines.values())
        for line in lines:
            self._resize(line, -line.size)
        left = {part.request for line in lines for part in line.slices}
        return left | {text.request for line in lines for text in line.tokenized}

    def _in_order(self) -> list[_Line]:
        """Return the lines, the most urgent first."""

        def order(line: _Line) -> tuple[int, int, Priority]:
            lane = line.priority.lane
            last = self._last_batch.get((line.namespace, lane), 0)
            return _URGENCY.index(lane), last, line.priority

        return sorted(self._lines.values(), key=order)

    def _next_slice(self, line: _Line) -> TextSlice | None:
        while line.slices:
            part = line.slices.popleft()
            if not part.request.abandoned:
                line.tokenizing += 1
                return part
            self._drop_abandoned(line, part.request, len(part.texts))
        return None

    def _next_batch(self, line: _Line) -> Batch:
        """Return the oldest text with the texts behind it that are closest in length.

        Every batch contains the oldest text, so texts of every length get their turn. If the line
        leaves room, texts of other namespaces of the same priority fill it.
        """
        while line.tokenized and line.tokenized[0].request.abandoned:
            self._drop_abandoned(line, line.tokenized.popleft().request, 1)
        if not line.tokenized:
            return []
        first = line.tokenized[0]
        batch = [first]
        length = len(first.tokens)
        longest = length
        for text in self._sort_by_length(line, length):
            longest = max(longest, len(text.tokens))
            if (len(batch) + 1) * longest > self._max_tokens:
                break
            if not text.request.abandoned:
                batch.append(text)
        self._remove_batch(batch)
        return batch

    def _sort_by_length(self, line: _Line, length: int) -> Iterator[TokenizedText]:
        """Yield the texts that may share a batch with the oldest of a line, the best first."""
        others = [
            other.tokenized
            for other in self._lines.values()
            if other.priority == line.priority and other is not line
        ]
        for texts in (islice(line.tokenized, 1, None), chain.from_iterable(others)):
            yield from sorted(
                islice(texts, _WINDOW - 1), key=lambda text: abs(len(text.tokens) - length)
            )

    def _remove_batch(self, batch: Batch) -> None:
        """Remove the texts of the next batch, which counts for the namespace of its first text."""
        first = batch[0].request
        self._batches += 1
        self._last_batch[first.namespace, first.priority.lane] = self._batches
        taken = set(batch)
        for key in {(text.request.namespace, text.request.priority) for text in batch}:
            line = self._lines[key]
            left = deque(text for text in line.tokenized if text not in taken)
            self._resize(line, len(left) - len(line.tokenized))
            line.tokenized = left

    def _find_line(self, request: EncodingRequest) -> _Line | None:
        """Return the line that a request waits in; None if it was cleared."""
        return self._lines.get((request.namespace, request.priority))

    def _drop_abandoned(self, line: _Line, request: EncodingRequest, texts: int) -> None:
        self._resize(line, -texts)
        if not request.failed:
            reason = "deadline" if request.expired else "cancelled"
            self._metrics.dropped_texts.labels(reason).inc(texts)

    def _resize(self, line: _Line, change: int) -> None:
        line.size += change
        self._metrics.queue_texts.labels(line.priority.lane).inc(change)
        if not line.size:
            del self._lines[line.namespace, line.priority]
        if not self._lines:
            self._last_batch.clear()
