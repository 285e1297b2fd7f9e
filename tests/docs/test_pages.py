"""The reader of pages notices where a page is wrong."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.answers import check_contained, check_lines
from tests.docs.pages import Reader, blocks


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with Reader(tmp_path, {"COLOUR": "blue"}, {"8000": "9"}) as reader:
        yield reader


def page(*fenced: tuple[str, str]) -> str:
    return "\n".join(f"Text.\n\n```{info}\n{text}\n```\n" for info, text in fenced)


def test_a_block_out_of_place_is_not_passed_over() -> None:
    with pytest.raises(AssertionError, match="indented"):
        blocks("- item\n  ```sh\n  ls\n  ```\n")


@pytest.mark.parametrize(
    "wrong",
    [
        [("sh", "false\ntrue")],
        [("sh", "exit 0")],
        [("sh", "echo a"), ("text", "b")],
        [("sh", "echo '{}'"), ("json", '{"a": 1}')],
        [("python", "1 / 0")],
        [("toml", "a = 1")],
        [("sh", """echo '{"type":"urn:turnwise:problem:x"}'""")],
    ],
    ids=["failed", "left", "text", "json", "raised", "unknown", "problem"],
)
def test_a_page_that_is_wrong_fails_where_it_is(
    reader: Reader, wrong: list[tuple[str, str]]
) -> None:
    with pytest.raises(Exception, match=r".*") as raised:
        reader.follow(page(("sh", "true"), *wrong))
    assert raised.value.__notes__[0].startswith("in the block at line ")


@pytest.mark.parametrize(
    ("shown", "actual"),
    [
        ({"a": 1}, {}),
        ({"a": 1.0}, {"a": 1.03}),
        ({"a": "x"}, {"a": "y"}),
        ([1], [1, 2]),
        ([{"a": None}], [{"a": 0}]),
        ({}, []),
    ],
)
def test_an_answer_that_differs_is_noticed(shown: object, actual: object) -> None:
    with pytest.raises(AssertionError):
        check_contained(shown, actual)


@pytest.mark.parametrize("shown", ["b\na", "a 2", "b", "a 1.5 ..."])
def test_lines_that_were_not_printed_are_noticed(shown: str) -> None:
    with pytest.raises(AssertionError):
        check_lines(shown, "a 1\nb 2\n")
