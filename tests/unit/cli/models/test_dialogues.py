from pathlib import Path

from typer.testing import CliRunner

from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.errors import DataError
from turnwise.service.cli.main import app


def test_a_table_with_any_columns_becomes_dialogues(tmp_path: Path) -> None:
    table = tmp_path / "chats.csv"
    table.write_text("chat,who,line\n7,guest,Hi.\n7,desk,Hello.\n8,guest,Bye.\n8,desk,See you.\n")
    out = tmp_path / "chats.jsonl"
    names = ["--dialogue", "chat", "--speaker", "who", "--text", "line"]
    ended = CliRunner().invoke(app, ["dialogues", str(table), *names, "--out", str(out)])
    assert ended.output == f"{out}: 2 dialogues, utterances: 2 by guest, 2 by desk\n"
    assert [[each.text for each in one.utterances] for one in read_dialogues(out)] == [
        ["Hi.", "Hello."],
        ["Bye.", "See you."],
    ]


def test_stories_and_choices_stay_what_they_are(tmp_path: Path) -> None:
    source = tmp_path / "source.jsonl"
    chosen = '{"speaker": "bot", "text": "No.", "shown": ["No.", "Yes."], "chosen": "No."}'
    source.write_text(
        '{"id": "story", "join": false, "utterances": [{"speaker": "a", "text": "Once."}, '
        '{"speaker": "a", "text": "Twice."}]}\n'
        '{"id": "default/ada", "utterances": [{"speaker": "a", "text": "Now?"}, ' + chosen + "]}\n"
    )
    out = tmp_path / "out.jsonl"
    ended = CliRunner().invoke(app, ["dialogues", str(source), "--out", str(out)])
    assert ended.output == f"{out}: 2 dialogues, utterances: 3 by a, 1 by bot\n"
    assert list(read_dialogues(out)) == list(read_dialogues(source))


def test_warnings_name_what_is_probably_wrong(tmp_path: Path) -> None:
    table = tmp_path / "chats.csv"
    table.write_text(
        "dialogue,speaker,text\n1,user,Hi.\n1,Desk,Hello.\n2,user,Hi.\n2,Desk,Hello.\n"
        "3,user,Well?\n3,DESK,No.\n4,user,Hello?\n"
    )
    ended = CliRunner().invoke(app, ["dialogues", str(table), "--out", str(tmp_path / "o.jsonl")])
    assert ended.stderr.splitlines() == [
        "warning: Desk and DESK count as 2 speakers: give them one name if they are one",
        "warning: 1 dialogue has a single utterance, so no reply to learn from",
        "warning: 1 dialogue repeats the utterances of an earlier one: keep copies together when "
        "you split them",
    ]


def test_files_without_a_dialogue_are_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("dialogue,speaker,text\n1,user,\n")
    out = tmp_path / "out.jsonl"
    ended = CliRunner().invoke(app, ["dialogues", str(empty), "--out", str(out)])
    assert isinstance(ended.exception, DataError)
    assert str(ended.exception) == f"{empty}: has no dialogue"
    assert not out.exists()


def test_lines_are_not_written_into_a_file_of_another_format(tmp_path: Path) -> None:
    out = tmp_path / "chats.csv"
    ended = CliRunner().invoke(app, ["dialogues", "any.jsonl", "--out", str(out)])
    assert ended.exit_code == 2
    assert "JSON Lines" in ended.output
    assert not out.exists()
