"""Reads all pages of a listing, whose answers hold the cursor of the next page."""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar


class Page(Protocol):
    """An answer that holds a part of a listing."""

    @property
    def cursor(self) -> str | None:
        """The cursor of the next page; None after the last one."""


P = TypeVar("P", bound=Page)


def read_pages(call: Callable[[str | None], P]) -> Iterator[P]:
    """Yield the pages that a call returns, each with the cursor of the page before."""
    page = call(None)
    yield page
    while page.cursor is not None:
        page = call(page.cursor)
        yield page
