"""`turnwise pool list`, `show` and `edit`: what a pool can say."""

import sys
import tempfile
from pathlib import Path

import pytest

from tests.service.conftest import Command
from tests.support.service import Live
from turnwise.service.use_cases import learning

PAY = {
    "id": "pay",
    "text": "By card.",
    "metadata": {"topic": 'it\'s "money"', "prices": [1, None]},
    "examples": ["Cash?", "It's 'how' I pay?"],
    "group": "paying",
}
HOURS = {"id": "hours", "text": "We open\nat nine.", "metadata": {"topic": "visit"}}


@pytest.fixture
def shop(live: Live, monkeypatch: pytest.MonkeyPatch) -> Live:
    monkeypatch.setattr(learning, "NEAR_COPY", 2.0)  # to the tiny model short texts are alike
    live.put("/pools/shop", {"description": "Replies of a shop"})
    live.put("/pools/shop/candidates", [PAY, HOURS])
    turn = live.turn("s", "user", "Do you take Maestro?", pool="shop")["turn"]
    assert live.feedback("pay", "chosen", turn=turn, learn=True)["learned"]
    return live


@pytest.fixture
def editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The program of an editor, which changes the file that it is given."""
    program = tmp_path / "editor.py"
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {program}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return program


def replacing(*pairs: tuple[str, str]) -> str:
    """A program that replaces texts in the file that it is given."""
    return (
        "import pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "text = file.read_text('utf-8')\n"
        f"for old, new in {pairs!r}:\n"
        "    assert old in text, text\n"
        "    text = text.replace(old, new)\n"
        "file.write_text(text, 'utf-8')\n"
    )


def test_pools_and_candidates_are_listed(shop: Live, command: Command) -> None:
    url = ("--url", shop.url)
    assert "shop: 2 candidates, version 2, ready; Replies of a shop\n" in command("list", *url)
    hours = "hours  We open at nine.\n"
    pay = "pay  By card.  [group paying, examples: 2, learned: 1]\n"
    assert command("list", "shop", *url) == hours + pay
    assert command("list", "shop", "--words", "MAESTRO", *url) == pay
    assert command("list", "shop", "--where", '{"topic": "visit"}', *url) == hours
    assert command("list", "shop", "--limit", "1", *url).startswith(hours)


def test_options_change_one_candidate(shop: Live, command: Command) -> None:
    edit = ("edit", "shop", "pay", "--url", shop.url)
    said = command(*edit, "--text", "Any card.", "--group", "", "--metadata", "{}")
    assert said == "pool shop: version 3, candidate pay was changed\n"
    command(*edit, "--add-example", "Cheque?", "--remove-example", "Cash?")
    assert command(*edit, "--add-example", "Cheque?") == "nothing was changed\n"
    command(*edit, "--remove-example", "Do you take Maestro?")
    assert shop.get("/pools/shop/candidates/pay") == {
        "id": "pay",
        "text": "Any card.",
        "metadata": {},
        "group": None,
        "examples": ["It's 'how' I pay?", "Cheque?"],
        "learned": [],
    }


def test_an_editor_changes_what_a_person_changes_in_it(
    shop: Live, command: Command, editor: Path
) -> None:
    edit = ("edit", "shop", "pay", "--url", shop.url)
    editor.write_text("")
    before = shop.get("/pools/shop/candidates/pay")
    assert command(*edit) == "nothing was changed\n"
    editor.write_text(replacing(("By card.", "Any card."), ('    "Do you take Maestro?",\n', "")))
    assert command(*edit).endswith("candidate pay was changed\n")
    after = shop.get("/pools/shop/candidates/pay")
    assert after == before | {"text": "Any card.", "learned": []}


@pytest.mark.parametrize(
    ("edited", "error"),
    [
        (("text =", "text"), "cannot be read"),
        (("text =", "words ="), "no field 'words'"),
        (("learned = [", 'learned = [ "What?",'), "add 'What?' to the examples"),
        (('learned = [\n    "Do you take Maestro?",\n]', "learned = 5"), "must be a list"),
        (("metadata = ", "metadata = 5 # "), "metadata as JSON in quotes"),
        (('    "Do you take Maestro?",\n]', f"]\nbody = '{'x' * 20_000}'"), "limit of 16384"),
    ],
)
def test_an_edited_file_that_makes_no_sense_changes_nothing_and_is_kept(
    shop: Live, refused: Command, editor: Path, edited: tuple[str, str], error: str
) -> None:
    editor.write_text(replacing(edited))
    said = refused("edit", "shop", "pay", "--url", shop.url)
    assert error in said
    assert edited[1] in Path(said.split("the file is ")[1].strip()).read_text("utf-8")
    assert shop.get("/pools/shop")["version"] == 2


def test_an_edited_file_is_kept_when_the_editor_fails(
    shop: Live, refused: Command, editor: Path
) -> None:
    editor.write_text("raise SystemExit(3)")
    said = refused("edit", "shop", "pay", "--url", shop.url)
    assert "ended with status 3; nothing was changed; the file is " in said


@pytest.mark.parametrize("name", ["no-such-editor", "vi 'x"])
@pytest.mark.usefixtures("editor")
def test_an_editor_that_cannot_be_started_is_named(
    shop: Live, refused: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("EDITOR", name)
    said = refused("edit", "shop", "pay", "--url", shop.url)
    assert f"the editor '{name}' cannot be started" in said
