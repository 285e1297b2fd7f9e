"""The reader of pages notices where a page is wrong."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.answers import check_contained, check_lines
from tests.pages import Reader, blocks


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with Reader(tmp_path, {"COLOUR": "blue"}, {"8000": "9"}) as reader:
        yield reader


def page(*fenced: tuple[str, str]) -> str:
    return "\n".join(f"Text.\n\n```{info}\n{text}\n```\n" for info, text in fenced)


def test_blocks_know_their_language_title_and_line() -> None:
    text = page(("sh", "ls"), ('json title="a.json"', "{}"))
    one, other = blocks(text + "\n<!-- not run: docker -->\n```sh\ndocker ps\n```\n")[:2]
    assert (one.language, one.text, one.line, one.title) == ("sh", "ls\n", 3, None)
    assert (other.language, other.title) == ("json", "a.json")
    assert blocks("<!-- not run: docker -->\n```sh\nx\n```\n")[0].needs == "docker"


def test_a_block_out_of_place_is_not_passed_over() -> None:
    with pytest.raises(AssertionError, match="indented"):
        blocks("- item\n  ```sh\n  ls\n  ```\n")


def test_functions_variables_and_files_last(reader: Reader) -> None:
    reader.follow(
        page(
            ('json title="a.json"', '{"port": 8000}'),
            ("sh", "say() { echo $1 $COLOUR; }\nx=sky"),
            ("sh", "say $x; cat a.json"),
            ("text", 'sky blue\n{"port": 9}'),
            ("python", "x = 1"),
            ("python", "print(x)"),
            ("text", "1"),
        )
    )


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


def test_a_problem_may_be_shown(reader: Reader) -> None:
    problem = '{"type":"urn:turnwise:problem:x"}'
    reader.follow(page(("sh", f"echo '{problem}'"), ("json", problem)))


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


def test_an_answer_may_hold_more_and_differ_a_little() -> None:
    check_contained({"a": [{"b": 0.46}]}, {"a": [{"b": 0.4568, "c": 1}], "d": 2})


def test_lines_may_have_others_between_them_and_go_on() -> None:
    check_lines("a   0.50\nb ...", "x\na 0.503\ny\nb 17 18\n")


@pytest.mark.parametrize("shown", ["b\na", "a 2", "b", "a 1.5 ..."])
def test_lines_that_were_not_printed_are_noticed(shown: str) -> None:
    with pytest.raises(AssertionError):
        check_lines(shown, "a 1\nb 2\n")
