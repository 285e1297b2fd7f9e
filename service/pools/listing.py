"""Lists of candidates: a page of a pool, and the search for the words in its candidates."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from turnwise.service.pools.candidate import Candidate


class CandidateTest(Protocol):
    """A test of candidates, such as a filter. Tests of equal sources accept the same candidates."""

    @property
    def source(self) -> str:
        """A text that identifies the test."""

    @property
    def size(self) -> int:
        """Number of look-ups that it makes for a candidate."""

    def accepts(self, candidate: Candidate) -> bool:
        """Return whether a candidate passes."""


@dataclass(frozen=True, slots=True)
class WordSearch:
    """A search for a part of an id, a text or an example.

    Upper and lower case are the same, and so are the ways in which Unicode writes a character.

    Attributes:
        wanted: The part, folded.
        in_learned: Whether learned examples are searched, too.
    """

    wanted: str
    in_learned: bool

    @classmethod
    def of(cls, words: str | None, *, in_learned: bool) -> "WordSearch | None":
        """Return the search for some words; None for none."""
        folded = _fold((words or "").strip())
        return cls(folded, in_learned) if folded else None

    @property
    def source(self) -> str:
        """The part, after `<`: sources of filters begin with other brackets."""
        return f"<{self.in_learned}<{self.wanted}"

    @property
    def size(self) -> int:
        """Number of look-ups: one, in the texts."""
        return 1

    def accepts(self, candidate: Candidate) -> bool:
        """Return whether the candidate contains the part."""
        examples = candidate.all_examples if self.in_learned else candidate.examples
        places = (candidate.text, candidate.id, *examples)
        return any(self.wanted in _fold(place) for place in places)


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text.casefold())


class Page(NamedTuple):
    """Candidates of a pool, and where the next page begins."""

    candidates: Sequence[Candidate]
    cursor: str | None
    """Id after which the next page begins; None after the last page."""
    matching: int | None
    """Number of the candidates on all pages; None if it was not counted."""
