"""Listings that a service answers in pages."""

from typing import NamedTuple

from turnwise.service.cli.pages import read_pages


class Numbers(NamedTuple):
    numbers: list[int]
    cursor: str | None


PAGES = {None: Numbers([1, 2], "a"), "a": Numbers([], "b"), "b": Numbers([3], None)}


def test_all_pages_are_read_also_after_an_empty_one() -> None:
    pages = read_pages(PAGES.__getitem__)
    assert [number for page in pages for number in page.numbers] == [1, 2, 3]
