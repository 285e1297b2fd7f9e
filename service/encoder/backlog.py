"""What waits for the encoder, and what of it comes next."""

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
_PIECE = 32


class Priority(IntEnum):
    """Who goes first."""

    TURN = 0
    """An utterance that a client waits for."""
    LIST = 1
    """Candidates and goals that a client waits for."""
    IDLE = 2
    """What the next turn will need."""
    BULK = 3
    """Uploads; whoever sends them waits for each slice, so that they need no bound."""

    @property
    def lane(self) -> Lane:
        """What metrics tell apart."""
        return _LANES[self]


_LANES: dict[Priority, Lane] = {
    Priority.TURN: "critical",
    Priority.LIST: "critical",
    Priority.IDLE: "idle",
    Priority.BULK: "bulk",
}


@dataclass(eq=False, slots=True)
class EncodingRequest:
    """Texts that are asked for together, and what is known of their vectors."""

    items: Sequence[RoleText]
    priority: Priority
    answer: asyncio.Future[Float32]
    vectors: Float32
    """(n, d); rows are filled in as they come."""
    deadline: float = math.inf
    since: float = field(default_factory=time.monotonic)
    id: str | None = field(default_factory=lambda: request_id.get(None))
    """Id of the HTTP request that it is a part of, for what another thread logs about it."""
    encoded: int = 0
    failed: bool = False

    @property
    def gone(self) -> bool:
        """Whether nobody waits for vectors any more."""
        return self.failed or self.answer.done() or self.late

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return self.deadline < time.monotonic()


@dataclass(eq=False, slots=True)
class Piece:
    """Some texts of a request, to be cut into word pieces at once."""

    request: EncodingRequest
    start: int

    @property
    def items(self) -> Sequence[RoleText]:
        """At most `_PIECE` texts."""
        return self.request.items[self.start : self.start + _PIECE]


@dataclass(eq=False, slots=True)
class Entry:
    """One text of a request, in word pieces."""

    request: EncodingRequest
    place: int
    tokens: list[int]


class Backlog:
    """Texts by priority, first as they came, then as word pieces. Its user holds a lock."""

    def __init__(self, metrics: Metrics, budget: int) -> None:
        """Start empty.

        Args:
            metrics: Gets the depth of each lane, and what is dropped.
            budget: Tokens of a padded batch.
        """
        self._metrics, self._budget = metrics, budget
        self._sizes = dict.fromkeys(Priority, 0)
        self._in_hand = dict.fromkeys(Priority, 0)
        self._pieces: list[deque[Piece]] = [deque() for _ in Priority]
        self._entries: list[deque[Entry]] = [deque() for _ in Priority]

    @property
    def size(self) -> int:
        """Texts that wait, those included that are being cut into word pieces."""
        return sum(self._sizes.values())

    def before(self, priority: Priority) -> int:
        """Texts that wait and come before what comes now, so that idle work turns none away."""
        return sum(self._sizes[other] for other in Priority if other <= priority)

    @property
    def oldest(self) -> float:
        """Age in seconds of the text that has waited longest, of those that clients wait for."""
        critical = [priority for priority in Priority if priority.lane == "critical"]
        waiting = [queue for p in critical for queue in (self._pieces[p], self._entries[p])]
        heads = [queue[0].request.since for queue in waiting if queue]
        return time.monotonic() - min(heads) if heads else 0.0

    def add(self, request: EncodingRequest) -> None:
        """Take a request in, behind all others of its priority."""
        self._resize(request.priority, len(request.items))
        starts = range(0, len(request.items), _PIECE)
        self._pieces[request.priority].extend(Piece(request, start) for start in starts)

    def take(self) -> list[Entry] | Piece | None:
        """Return what the device's thread is to do next: run a batch, or first cut texts up.

        None where nothing waits, or somebody else has what comes next in hand: that takes less time
        than a batch of something less urgent would.
        """
        for priority in Priority:
            if work := self._take_batch(priority) or self._take_piece(priority):
                return work
            if self._in_hand[priority]:
                return None
        return None

    def take_piece(self) -> Piece | None:
        """Return the next texts to be cut into word pieces."""
        return next(filter(None, map(self._take_piece, Priority)), None)

    def put(self, piece: Piece, tokens: Sequence[list[int]]) -> None:
        """Take back the texts of a piece that was taken, cut into word pieces."""
        self._in_hand[piece.request.priority] -= 1
        self._entries[piece.request.priority].extend(
            Entry(piece.request, piece.start + n, ids) for n, ids in enumerate(tokens)
        )

    def forget(self, piece: Piece) -> None:
        """Give up the texts of a piece that was taken."""
        self._in_hand[piece.request.priority] -= 1
        self._resize(piece.request.priority, -len(piece.items))

    def clear(self) -> set[EncodingRequest]:
        """Forget everything; return the requests that it belonged to."""
        left = {piece.request for pieces in self._pieces for piece in pieces}
        left |= {entry.request for entries in self._entries for entry in entries}
        for priority in Priority:
            self._pieces[priority].clear()
            self._entries[priority].clear()
            self._resize(priority, -self._sizes[priority])
        return left

    def _take_piece(self, priority: Priority) -> Piece | None:
        waiting = self._pieces[priority]
        while waiting:
            piece = waiting.popleft()
            if not piece.request.gone:
                self._in_hand[priority] += 1
                return piece
            self._drop(piece.request, len(piece.items))
        return None

    def _take_batch(self, priority: Priority) -> list[Entry]:
        """Take the oldest entry, and of those behind it that are most like it in length, a batch.

        The oldest is in every batch, so that no length starves another.
        """
        waiting = self._entries[priority]
        while waiting and waiting[0].request.gone:
            self._drop(waiting.popleft().request, 1)
        if not waiting:
            return []
        first, *others = (waiting[n] for n in range(min(len(waiting), _WINDOW)))
        batch, length = [first], len(first.tokens)
        longest = length
        for entry in sorted(others, key=lambda entry: abs(len(entry.tokens) - length)):
            longest = max(longest, len(entry.tokens))
            if (len(batch) + 1) * longest > self._budget:
                break
            if not entry.request.gone:
                batch.append(entry)
        taken = set(map(id, batch))
        self._entries[priority] = deque(entry for entry in waiting if id(entry) not in taken)
        self._resize(priority, -len(batch))
        return batch

    def _drop(self, request: EncodingRequest, texts: int) -> None:
        self._resize(request.priority, -texts)
        if not request.failed:
            reason = "deadline" if request.late else "cancelled"
            self._metrics.dropped_texts.labels(reason).inc(texts)

    def _resize(self, priority: Priority, change: int) -> None:
        self._sizes[priority] += change
        self._metrics.queue_texts.labels(priority.lane).inc(change)
