from pathlib import Path

from typer.testing import CliRunner

from turnwise.models.dialogue_files import read_dialogues
from turnwise.service.cli.main import app


def test_a_table_with_any_columns_becomes_dialogues(tmp_path: Path) -> None:
    table = tmp_path / "chats.csv"
    table.write_text("chat,who,line\n7,guest,Hi.\n7,desk,Hello.\n8,guest,Bye.\n")
    out = tmp_path / "chats.jsonl"
    names = ["--dialogue", "chat", "--speaker", "who", "--text", "line"]
    ended = CliRunner().invoke(app, ["dialogues", str(table), *names, "--out", str(out)])
    assert ended.output == f"{out}: 2 dialogues, utterances: 2 by guest, 1 by desk\n"
    assert [[each.text for each in one.utterances] for one in read_dialogues(out)] == [
        ["Hi.", "Hello."],
        ["Bye."],
    ]


def test_lines_are_not_written_into_a_file_of_another_format(tmp_path: Path) -> None:
    out = tmp_path / "chats.csv"
    ended = CliRunner().invoke(app, ["dialogues", "any.jsonl", "--out", str(out)])
    assert ended.exit_code == 2
    assert "JSON Lines" in ended.output
    assert not out.exists()
