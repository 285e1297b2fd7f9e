import gzip
import json
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwise.models.data import Dialogue, Preferred, Utterance, merge_runs
from turnwise.models.dialogue_files import DialogueFormat, read_dialogues
from turnwise.models.errors import ConfigError, DataError, TurnwiseError

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
}
FORMATS = {
    ".jsonl": '{"id": "zoo-1", "utterances": [{"speaker": "A", "text": "Fancy the zoo?"},'
    ' {"speaker": "B", "text": "Très volontiers."}]}\n',
    ".txt": "Fancy the zoo? __eou__ Très volontiers. __eou__\n",
    ".csv": "dialogue_id,speaker,text\nzoo-1,A,Fancy the zoo?\nzoo-1,B,Très volontiers.\n",
}
each_format = pytest.mark.parametrize(
    ("ending", "compression"), [(".jsonl", ""), (".txt", ".gz"), (".csv", ".xz")]
)


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_line(folder: Path, record: object) -> list[Dialogue]:
    """Read a JSONL file whose second line is the record; the first is blank."""
    return list(read_dialogues(written(folder, "talk.jsonl", "\n" + json.dumps(record))))


def failure(path: Path) -> DataError:
    with pytest.raises(DataError) as caught:
        list(read_dialogues(path))
    assert caught.value.file == str(path)
    return caught.value


def said(*texts: str) -> list[dict[str, str]]:
    return [{"speaker": "AB"[i % 2], "text": text} for i, text in enumerate(texts)]


def test_merging_joins_the_texts_of_a_run_by_a_space() -> None:
    run = [Utterance("A", "Wait."), Utterance("A", "Stop."), Utterance("C", "Why?")]
    assert merge_runs(run) == (Utterance("A", "Wait. Stop."), Utterance("C", "Why?"))


@each_format
def test_every_format_and_every_compression_is_read(
    tmp_path: Path, ending: str, compression: str
) -> None:
    content = COMPRESS[compression](FORMATS[ending].encode())
    (dialogue,) = read_dialogues(str(written(tmp_path, f"zoo{ending}{compression}", content)))
    assert dialogue == Dialogue(
        "zoo-1", (Utterance("A", "Fancy the zoo?"), Utterance("B", "Très volontiers."))
    )


def test_white_space_runs_become_a_space_and_empty_texts_go_before_runs_are_merged(
    tmp_path: Path,
) -> None:
    (dialogue,) = read_line(tmp_path, {"utterances": said(" Two\t \nteas ", " \n ", "please")})
    assert dialogue.utterances == (Utterance("A", "Two teas please"),)


@pytest.mark.parametrize(
    ("record", "texts"),
    [
        ({}, ["It rained. So we stayed."]),
        ({"join": True}, ["It rained. So we stayed."]),
        ({"join": False}, ["It rained.", "So we stayed."]),
    ],
)
def test_a_story_keeps_the_utterances_of_one_speaker_apart(
    tmp_path: Path, record: dict[str, bool], texts: list[str]
) -> None:
    told = [{"speaker": "A", "text": text} for text in ("It rained.", " ", "So we  stayed.")]
    (story,) = read_line(tmp_path, {"utterances": told, **record})
    assert [utterance.text for utterance in story.utterances] == texts


OPENAI = {
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Fancy"}, {"type": "image_url"}]},
        {"role": "user", "content": "the zoo?"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "content": "open"},
        {"role": "assistant", "content": "Gladly."},
    ]
}
SHAREGPT = {
    "id": "zoo",
    "conversations": [
        {"from": "system", "value": "Be kind."},
        {"from": "human", "value": "Fancy the zoo?"},
        {"from": "gpt", "value": "Gladly."},
    ],
}


@pytest.mark.parametrize("record", [OPENAI, SHAREGPT])
@pytest.mark.parametrize("layout", ["zoo.jsonl", "zoo.json"])
def test_conversations_of_other_tools_are_read(
    tmp_path: Path, record: dict[str, object], layout: str
) -> None:
    content = json.dumps([record], indent=1) if layout == "zoo.json" else json.dumps(record)
    (dialogue,) = read_dialogues(written(tmp_path, layout, content))
    assert dialogue.id == record.get("id", "zoo-" + ("2" if layout == "zoo.json" else "1"))
    assert dialogue.utterances == (Utterance("user", "Fancy the zoo?"), Utterance("bot", "Gladly."))


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("t.csv", "Conversation_ID;Role;Message\n7;A;Hi.\n7;B;Bye.\n", DialogueFormat()),
        ("t.tsv", "session\tfrom\tcontent\n7\tA\tHi.\n7\tB\tBye.\n", DialogueFormat()),
        (
            "t.csv",
            "id,Fall,Wer,Was\n1,7,A,Hi.\n2,7,B,Bye.\n",
            DialogueFormat(dialogue="Fall", speaker="Wer", text="Was"),
        ),
    ],
)
def test_a_table_may_have_other_columns(
    tmp_path: Path, name: str, content: str, columns: DialogueFormat
) -> None:
    (dialogue,) = read_dialogues(written(tmp_path, name, content), columns)
    assert dialogue == Dialogue("7", (Utterance("A", "Hi."), Utterance("B", "Bye.")))


def test_a_right_response_of_ioi_ends_a_dialogue(tmp_path: Path) -> None:
    content = "1\tAny news?\t\tNone  yet.\n0\tAny news?\tNo.\n"
    (dialogue,) = read_dialogues(written(tmp_path, "train.tsv", content))
    assert dialogue.id == "train-1"
    assert dialogue.utterances == (Utterance("A", "Any news?"), Utterance("B", "None yet."))


@pytest.mark.parametrize("line", ["2\tHi.\tHo.", "1\tHi.", "Hi.", "1\tHi.\t ", ""])
def test_a_wrong_line_of_ioi_is_named(tmp_path: Path, line: str) -> None:
    error = failure(written(tmp_path, "train.tsv", f"1\tHi.\tHo.\n{line}\n"))
    assert (error.line, error.field) == (2, None)


def test_a_dialogue_with_nothing_said_is_skipped(tmp_path: Path) -> None:
    content = "Hello. __eou__\n\n __eou__ __eou__\nBye. __eou__ Bye. __eou__\n"
    dialogues = list(read_dialogues(written(tmp_path, "talk.txt", content)))
    assert [dialogue.id for dialogue in dialogues] == ["talk-1", "talk-4"]


def test_speakers_of_the_text_format_alternate_over_what_is_said(tmp_path: Path) -> None:
    line = "One __eou__ two__eou__ __eou__three\r\n"  # an empty text, and no mark at the end
    (dialogue,) = read_dialogues(written(tmp_path, "t.txt", line))
    assert dialogue.utterances == tuple(map(Utterance, "ABA", ("One", "two", "three")))


@pytest.mark.parametrize(
    ("record", "expected"),
    [({}, "talk-2"), ({"id": None}, "talk-2"), ({"id": 7}, "7"), ({"id": " x "}, "x")],
)
def test_the_id_of_a_json_dialogue(
    tmp_path: Path, record: dict[str, object], expected: str
) -> None:
    (dialogue,) = read_line(tmp_path, record | {"utterances": said("Hello."), "unknown": 1})
    assert dialogue.id == expected


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (3, None),
        ({}, "utterances"),
        ({"utterances": None}, "utterances"),
        ({"utterances": said("Hi."), "id": True}, "id"),
        ({"utterances": said("Hi."), "id": " "}, "id"),
        ({"utterances": [*said("Hi."), "Bye."]}, "utterances[1]"),
        ({"utterances": [*said("Hi."), {"speaker": 2, "text": ""}]}, "utterances[1].speaker"),
        ({"utterances": [{"speaker": "", "text": "Hi."}]}, "utterances[0].speaker"),
        ({"utterances": [{"speaker": "A", "text": None}]}, "utterances[0].text"),
        ({"utterances": said("Hi \ud83d.")}, "utterances[0].text"),
        ({"utterances": said("Hi."), "join": "no"}, "join"),
        (
            {"utterances": [{"speaker": "A", "text": "Hi.", "shown": ["Hi."], "chosen": ["Hi."]}]},
            "utterances[0].chosen",
        ),
    ],
)
def test_a_wrong_json_record_is_named_by_line_and_field(
    tmp_path: Path, record: object, field: str | None
) -> None:
    with pytest.raises(DataError) as caught:
        read_line(tmp_path, record)
    assert (caught.value.line, caught.value.field) == (2, field)


def test_an_error_reads_as_file_line_field_and_what_is_wrong(tmp_path: Path) -> None:
    error = failure(written(tmp_path, "t.jsonl", '{"utterances": [{"speaker": "A", "text": 5}]}'))
    place = f'{tmp_path / "t.jsonl"}, line 1, field "utterances[0].text"'
    assert str(error) == f"{place}: expected a string, found a number"


@pytest.mark.parametrize(
    "error",
    [DataError("odd", "a.jsonl", 3, "id"), DataError("odd", "a.csv"), ConfigError("odd", "c", "x")],
)
def test_errors_survive_pickling(error: TurnwiseError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("line", ["{", '{"id": 1} {}', "[" * 200_000, "1" * 5_000])
def test_bad_json_is_named_by_line(tmp_path: Path, line: str) -> None:
    assert failure(written(tmp_path, "t.jsonl", FORMATS[".jsonl"] + line)).line == 2


@each_format
def test_what_is_not_utf8_is_named_by_line(tmp_path: Path, ending: str, compression: str) -> None:
    content = FORMATS[ending].encode() * 3 + b"\xff\n"
    path = written(tmp_path, f"t{ending}{compression}", COMPRESS[compression](content))
    assert failure(path).line == content.count(b"\n")


def truncated(content: bytes, compress: Callable[[bytes], bytes]) -> bytes:
    return compress(content)[:-10]


def corrupt(content: bytes, compress: Callable[[bytes], bytes]) -> bytes:
    whole = bytearray(compress(content * 50))
    whole[len(whole) // 2] ^= 0xFF
    return bytes(whole)


def plain(content: bytes, _: Callable[[bytes], bytes]) -> bytes:
    return content


@pytest.mark.parametrize("compression", [".gz", ".xz"])
@pytest.mark.parametrize("damaged", [truncated, corrupt, plain])
def test_a_damaged_file_is_an_error(
    tmp_path: Path, compression: str, damaged: Callable[[bytes, Callable[[bytes], bytes]], bytes]
) -> None:
    content = damaged(FORMATS[".jsonl"].encode(), COMPRESS[compression])
    path = written(tmp_path, f"t.jsonl{compression}", content)
    assert "corrupt or truncated" in failure(path).what


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *((name, "unknown ending: .jsonl, ") for name in ("t.log", "t", "t.gz", "t.jsonl.gz.xz")),
        ("none.csv.gz", "No such file"),
        ("folder.jsonl", "directory"),
    ],
)
def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    assert what in failure(tmp_path / name).what


@pytest.mark.parametrize(
    ("rows", "line", "field"),
    [
        ("", 1, "dialogue"),
        ("id,who,text\n1,A,Hi.\n", 1, "speaker"),
        ("id,speaker,text\n1,A,Hi.\n1,B\n", 3, None),
        ("id,speaker,text,text\n1,A,Hi.,Bye.\n", 1, None),
        ("id,speaker,text\n1,A,Hi, you.\n", 2, None),
        ("id,speaker,text\n ,A,Hi.\n", 2, "id"),
        ("id,speaker,text\n1,A,Hi.\n1,,Hi.\n", 3, "speaker"),
        ("id,speaker,text\n1,A,Hi.\n2,A,Hi.\n1,B,Bye.\n", 4, "id"),
        ('id,speaker,text\n1,A,"Hi.\n', 2, None),
        ('id,speaker,text\n1,A,"Hi" there.\n', 2, None),
        (f"id,speaker,text\n1,A,{'a' * 200_000}\n", 2, None),
    ],
)
def test_wrong_csv_is_named_by_line_and_field(
    tmp_path: Path, rows: str, line: int, field: str | None
) -> None:
    error = failure(written(tmp_path, "t.csv", rows))
    assert (error.line, error.field) == (line, field)


def test_a_row_without_a_text_needs_no_speaker(tmp_path: Path) -> None:
    rows = "dialogue,speaker,text\n1,A,Hi.\n1,,\n1,B,Bye.\n"
    (dialogue,) = read_dialogues(written(tmp_path, "t.csv", rows))
    assert [said.text for said in dialogue.utterances] == ["Hi.", "Bye."]
    error = failure(written(tmp_path, "u.csv", rows.replace("1,B", "1, ")))
    assert (error.line, error.field) == (4, "speaker")
    assert error.what == "empty: fill in who said it, or remove rows without a speaker"


def test_csv_may_hold_quoted_line_breaks_other_columns_and_a_byte_order_mark(
    tmp_path: Path,
) -> None:
    rows = '\ufefftext,id,speaker,act\r\n"Hi,\r\n""you"".",1,A,x\r\nBye.,2,B,y\r\n'
    assert list(read_dialogues(written(tmp_path, "t.csv", rows))) == [
        Dialogue("1", (Utterance("A", 'Hi, "you".'),)),
        Dialogue("2", (Utterance("B", "Bye."),)),
    ]


def test_what_people_passed_over_stays_with_what_they_preferred(tmp_path: Path) -> None:
    utterances = [
        {"speaker": "A", "text": "a"},
        {
            "speaker": "B",
            "text": " b  c",
            "shown": ["x", "b c", "y\ny"],
            "chosen": "y\ny",
            "rejected": ["z", "x"],
        },
        {"speaker": "B", "text": "d", "rejected": ["w"]},
        {"speaker": "A", "text": "e", "shown": ["e"], "chosen": "e"},
    ]
    (dialogue,) = read_line(tmp_path, {"id": "1", "utterances": utterances})
    assert dialogue.utterances == (
        Utterance("A", "a"),
        Preferred("B", "b c d", ("x", "z", "w")),
        Utterance("A", "e"),
    )
