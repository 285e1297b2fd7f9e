"""The log of a pool: which versions there are, and what each changes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

from turnwise.service.wire.fields import EncoderName

Outcome = Literal["ok", "conflict", "expired"]
"""What a script says: done; somebody else was first; staged chunks are gone."""


class PoolKey(NamedTuple):
    """Which pool: names that no other namespace can reach."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Position(NamedTuple):
    """Which version of which pool of a name."""

    incarnation: str
    version: int
    stamp: str


class Head(NamedTuple):
    """What differs where a pool changed."""

    stamp: str
    description: str
    retrieval: EncoderName


NOWHERE = Position("", 0, "")


@dataclass(frozen=True, slots=True)
class Entry:
    """What one version changes; its candidates are in chunks."""

    stamp: str
    chunks: Sequence[str]
    count: int
    """Candidates in the chunks."""
    removed: Sequence[str]

    def dumped(self) -> bytes:
        """Return what the log holds."""
        names = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(names, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Log:
    """A pool's log as it was read.

    Attributes:
        position: Of its last entry.
        base: Version before its first entry.
        stored: Candidates in all chunks.
        has: How many of its entries the reader has already.
        entries: The others, oldest first.
    """

    position: Position
    base: int
    stored: int
    description: str
    created_at: float
    has: int
    entries: tuple[Entry, ...]

    @classmethod
    def loaded(cls, meta: list[bytes], has: int, entries: list[bytes]) -> Self:
        """Return what the script `read` found."""
        incarnation, version, stamp, base, stored, description, created_at = map(bytes.decode, meta)
        return cls(
            position=Position(incarnation, int(version), stamp),
            base=int(base),
            stored=int(stored),
            description=description,
            created_at=float(created_at),
            has=has,
            entries=tuple(Entry(**json.loads(entry)) for entry in entries),
        )

    @property
    def whole(self) -> bool:
        """Whether there is an entry for every version; not where Redis evicted them."""
        return self.base + self.has + len(self.entries) == self.position.version

    def until(self, position: Position) -> "Log | None":
        """Return a log that was read from its start, up to a version; None where it lacks it."""
        entries = self.entries[: max(0, position.version - self.base)]
        known = entries and entries[-1].stamp == position.stamp
        return replace(self, position=position, entries=entries) if known else None
