"""The changes that loading a file would make in a pool of a running service."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from turnwise.models.texts import shorten
from turnwise.service.cli.pages import read_pages
from turnwise.service.client import CandidateFile, NotFoundError, Pool, UploadedCandidate
from turnwise.service.wire.pools import PoolCandidate

_COMPARED = ("text", "examples", "group", "body")
"""Fields that loading a file may change, beside those of the metadata."""
_PAGE = 500
_SHOWN = 10
"""Candidates of a kind that are shown."""
_WIDTH = 60
"""Characters of a text that are shown."""


@dataclass(slots=True)
class PoolChanges:
    """The candidates of a file and of a pool, sorted by what loading would do with them."""

    pool_exists: bool = True
    new: dict[str, str] = field(default_factory=dict)
    """Texts by id: the pool does not have these candidates."""
    changed: dict[str, str] = field(default_factory=dict)
    """The pool has others with these ids."""
    fields: dict[str, list[str]] = field(default_factory=dict)
    """The names of the fields that differ, of each changed candidate."""
    unchanged: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    """The file does not have these candidates of the pool."""

    @classmethod
    def find(cls, file: CandidateFile, pool: Pool) -> "PoolChanges":
        """Return the changes of a pool, which may not exist."""
        given = {row.id: row.candidate for row in file.rows}
        pages = read_pages(lambda cursor: pool.candidates(limit=_PAGE, cursor=cursor))
        held_candidates = (held for page in pages for held in page.candidates)
        changes = cls()
        try:
            for held in held_candidates:
                candidate = given.pop(held.id, None)
                if candidate is None:
                    changes.missing[held.id] = held.text
                elif fields := _find_differences(candidate, held):
                    changes.changed[held.id] = candidate.text
                    changes.fields[held.id] = fields
                else:
                    changes.unchanged += 1
        except NotFoundError:
            changes.pool_exists = False
        changes.new = {id: candidate.text for id, candidate in given.items()}
        return changes

    def lines(self, *, removed: bool) -> Iterator[str]:
        """Yield a line for the first candidates of each kind; the missing ones only if removed."""
        missing = self.missing if removed else {}
        for mark, texts in (("+", self.new), ("~", self.changed), ("-", missing)):
            for id, text in list(texts.items())[:_SHOWN]:
                fields = self.fields.get(id)
                differ = f"  [{', '.join(fields)}]" if fields else ""
                yield f"{mark} {id}: {' '.join(shorten(text, _WIDTH).split())}{differ}"
            if len(texts) > _SHOWN:
                yield f"{mark} and {len(texts) - _SHOWN} more"


def _find_differences(given: UploadedCandidate, held: PoolCandidate) -> list[str]:
    """Return the names of the fields that loading would change, and of the metadata."""
    names = [name for name in _COMPARED if getattr(given, name) != getattr(held, name)]
    metadata = {**held.metadata, **given.metadata}
    names += [
        f"metadata.{name}"
        for name in metadata
        if given.metadata.get(name) != held.metadata.get(name)
    ]
    return names
