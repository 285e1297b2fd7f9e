"""Pages of the documentation, done as a reader would do them, block by block.

A fenced block is one of
- `sh`: run in the page's one shell; the first command that fails ends the page;
- `python`: run in the page's one interpreter;
- anything with `title="NAME"`: a file, written before what follows;
- `json`: what the block before it answers holds all of this; numbers may differ a little;
- `text`: what the block before it prints has these lines, in this order; one that ends in `...`
  goes on there.

`<!-- not run: PROGRAM -->` in the line before a block says that it needs what a test has not.
"""

import json
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Self

from tests.docs.answers import check_contained, check_lines, parse_answer
from tests.docs.shell import Shell

_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<needs>[\w-]+) -->\n)?"
    r'```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
_PROBLEM = '"urn:turnwise:problem:'
"""In an answer that says no; a page must show it, or it was not meant."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    title: str | None = None
    needs: str | None = None

    def __str__(self) -> str:
        return f"line {self.line}: {self.text.splitlines()[0] if self.text else ''}"


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    found = [
        Block(
            match["language"],
            match["text"],
            page.count("\n", 0, match.start("language")) + 1,
            match["title"],
            match["needs"],
        )
        for match in _FENCE.finditer(page)
    ]
    assert 2 * len(found) == page.count("```"), "a block is indented, or has other words"
    return found


class Reader:
    """Does what a page says, in a folder of its own; a context manager."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], instead: Mapping[str, str]
    ) -> None:
        """Begin a page.

        Args:
            folder: Where the page's files and commands go.
            environment: Of its shell, beside that of this process.
            instead: Words of the page, and what replaces them here: ports, models.
        """
        self._folder = folder
        self._instead = dict(instead)
        self._names: dict[str, object] = {"__name__": "__main__"}
        self._shell = Shell(folder, environment)
        self._printed = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.close()

    def follow(self, page: str) -> None:
        """Do every block of a page in its order."""
        todo = [block for block in blocks(page) if not block.needs]
        for block, following in zip_longest(todo, todo[1:]):
            try:
                self._do(block)
                answered = following and following.language == "json" and not following.title
                assert answered or _PROBLEM not in self._printed, self._printed
            except Exception as error:
                error.add_note(f"in the block at {block}")
                raise

    def _do(self, block: Block) -> None:
        text = self._here(block.text)
        match block:
            case Block(title=str(name)):
                (self._folder / name).write_text(text, encoding="utf-8")
                self._printed = ""
            case Block(language="sh"):
                self._printed = self._shell.run(text)
            case Block(language="python"):
                self._printed = run_python(text, self._names)
            case Block(language="json"):
                check_contained(json.loads(text), parse_answer(self._printed))
                self._printed = ""
            case Block(language="text"):
                check_lines(text, self._printed)
            case _:
                raise AssertionError(f"{block.language} without a title is nothing to do")

    def _here(self, text: str) -> str:
        for said, meant in self._instead.items():
            text = text.replace(said, meant)
        return text


def run_python(source: str, names: dict[str, object]) -> str:
    """Run a block of Python; return what it prints. `names` are its globals, for the next one."""
    with redirect_stdout(StringIO()) as out:
        exec(compile(source, "page", "exec"), names)  # noqa: S102 - what a reader would run
    return out.getvalue()
