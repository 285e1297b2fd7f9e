"""Files of candidates, as teams have them."""

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwise.models.errors import DataError
from turnwise.service.candidate_files import CandidateFile, Columns, read_ids

OPEN = {"text": "Wir öffnen um 9; sonntags nie.", "id": "1", "metadata": {"topic": "hours"}}
BYE = {"text": "Tschüss, bis bald!", "id": "2", "metadata": {"topic": "end"}}


def read(
    path: Path, content: str | bytes, columns: Columns | None = None, encoding: str | None = None
) -> list[dict[str, Any]]:
    """What is read from a file: the fields of each candidate that it gives."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    file = CandidateFile.read(path, columns, encoding)
    return [candidate.model_dump(exclude_defaults=True) for candidate in file.candidates]


def table(separator: str) -> str:
    rows = [
        ["id", "text", "topic"],
        ["1", f'"{OPEN["text"]}"', "hours"],
        ["", "", ""],
        ["2", f'"{BYE["text"]}"', "end"],
    ]
    return "\r\n".join(separator.join(row) for row in rows)


FILES = {
    "lines.jsonl": f"{json.dumps(OPEN)}\n\n{json.dumps(BYE)}\n",
    "lines.ndjson": f"{json.dumps(OPEN)}\r\n{json.dumps(BYE)}",
    "array.json": json.dumps([OPEN, BYE]),
    "pretty.json": json.dumps([OPEN, BYE], indent=2),
    "array.jsonl": json.dumps([OPEN, BYE]),
    "indented.json": "\n \t" + json.dumps([OPEN, BYE]),
    "indented.jsonl": f" \t{json.dumps(OPEN)}\n{json.dumps(BYE)}",
    "index.tsv": f"\tid\ttext\ttopic\n0\t1\t{OPEN['text']}\thours\n1\t2\t{BYE['text']}\tend\n",
    "no_ending": f"{json.dumps(OPEN)}\n{json.dumps(BYE)}\n",
    "fields.jsonl": json.dumps({"Id": 1, "Text": OPEN["text"], "topic": "hours"})
    + json.dumps({"id": 2, "text": BYE["text"], "topic": "end"}).join(["\n", ""]),
    "comma.csv": table(","),
    "semicolon.csv": table(";"),
    "tab.tsv": table("\t"),
    "excel.txt": table("\t"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_holds_the_same_candidates(tmp_path: Path, name: str) -> None:
    assert read(tmp_path / name, FILES[name]) == [OPEN, BYE]


@pytest.mark.parametrize(
    ("ending", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), ("", bytes)]
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_may_be_compressed_and_a_mark_names_its_encoding(
    tmp_path: Path, ending: str, compress: Callable[[bytes], bytes], encoding: str
) -> None:
    content = compress(FILES["semicolon.csv"].encode(encoding))
    assert read(tmp_path / f"a.csv{ending}", content) == [OPEN, BYE]


def test_another_encoding_is_named(tmp_path: Path) -> None:
    content = FILES["semicolon.csv"].encode("cp1252")
    with pytest.raises(DataError, match=r"a\.csv, line 2: not UTF-8.*cp1252"):
        read(tmp_path / "a.csv", content)
    assert read(tmp_path / "a.csv", content, encoding="cp1252") == [OPEN, BYE]
    for name in ("klingon", "hex", "idna"):
        with pytest.raises(DataError, match=f"there is no encoding '{name}'"):
            read(tmp_path / "a.csv", content, encoding=name)
    with pytest.raises(DataError, match=r"a\.txt: not UTF-16"):
        read(tmp_path / "a.txt", "Hello".encode("utf-16") + b"x")


def test_a_text_file_holds_one_text_a_line(tmp_path: Path) -> None:
    content = "We open at nine.\r\n\n [smiles] Text, and a comma, \nGoodbye!"
    texts = ["We open at nine.", "[smiles] Text, and a comma,", "Goodbye!"]
    assert read(tmp_path / "a.txt", content) == [{"text": text} for text in texts]


def test_rows_of_an_answer_are_one_candidate_with_all_their_questions(tmp_path: Path) -> None:
    content = "Question\tAnswer\tSource\nOpen?\tNine.\tweb\nShip?\tYes.\tweb\nTimes?\tNine.\tweb\n"
    path = tmp_path / "qna.tsv"
    nine, yes = read(path, content)
    assert nine == {"text": "Nine.", "examples": ["Open?", "Times?"], "metadata": {"Source": "web"}}
    assert yes["examples"] == ["Ship?"]
    assert CandidateFile.read(path).notes == [
        'text from "Answer", examples from "Question", metadata from "Source"'
    ]


def test_white_space_at_the_ends_of_cells_does_not_count(tmp_path: Path) -> None:
    content = "id ;answer;question;source\n a;Nine.;Open?; web\na ;Nine. ;Times?;web\n"
    assert read(tmp_path / "a.csv", content) == [
        {"id": "a", "text": "Nine.", "examples": ["Open?", "Times?"], "metadata": {"source": "web"}}
    ]


def test_a_line_that_tells_excel_the_separator_is_not_the_header(tmp_path: Path) -> None:
    content = "\ufeffsep=;\nanswer;question\nNine.;Open?\nYes.\n"
    with pytest.raises(DataError, match="line 4: 1 cell, but the header has 2"):
        read(tmp_path / "a.csv", content)
    (candidate,) = read(tmp_path / "b.csv", content.removesuffix("Yes.\n"))
    assert candidate == {"text": "Nine.", "examples": ["Open?"]}


@pytest.mark.parametrize(
    ("header", "meant"),
    [
        ("text,topic,exampels", ["examples"]),
        ("Answer,Example 1,grop", ["example", "group"]),
        ("text,After", ["after"]),
        ("answer,qestion,intents", ["question", "intent"]),
        ("answer,txt,_id", ["text", "id"]),
        ("text,id,uid,texts", []),
        ("text,examples,group,after,id,body", []),
        ("text,topic,date,context,source,title,language,kind,sample", []),
    ],
)
def test_a_note_asks_whether_a_column_is_misspelt(
    tmp_path: Path, header: str, meant: list[str]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n{header}\n")
    note = CandidateFile.read(path).notes[0]
    _, _, names = note.partition("; did you mean ")
    assert names == (", ".join(f'"{name}"' for name in meant) + "?" if meant else "")
    assert "did you mean" not in " ".join(CandidateFile.read(path, Columns(metadata=[])).notes)


def test_a_note_says_what_after_means(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,topic,after\nMorning?,time,Morning?\n")
    note = CandidateFile.read(path).notes[0]
    assert note == (
        'metadata from "topic", "after"; "after" names the replies that a candidate follows'
    )


@pytest.mark.parametrize(
    ("cell", "after"), [("day", ["day"]), ('"[""day"", ""full""]"', ["day", "full"])]
)
def test_a_cell_names_one_reply_that_comes_before_or_a_list(
    tmp_path: Path, cell: str, after: list[str]
) -> None:
    (time,) = read(tmp_path / "a.csv", f"text,after\nMorning or afternoon?,{cell}\n")
    assert time["metadata"] == {"after": after}


def test_a_candidate_keeps_as_many_questions_as_it_may_have(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [f"How is {number}?,Fine." for number in [*range(40), *range(10)]]
    (fine,) = read(path, "\n".join(["question,answer", *rows]))
    assert fine["examples"] == [f"How is {number}?" for number in range(32)]
    (_, left_out) = CandidateFile.read(path).notes
    assert left_out.startswith("8 examples left out")


@pytest.mark.parametrize(
    ("record", "candidate"),
    [
        ({"answer": "Yes.", "questions": ["A?", "B?"]}, {"examples": ["A?", "B?"]}),
        ({"reply": "Yes.", "question": '["A?", "B?"]'}, {"examples": ["A?", "B?"]}),
        ({"content": "Yes.", "question": "[knocks] Hello?"}, {"examples": ["[knocks] Hello?"]}),
        ({"text": "Yes.", "answer": "no"}, {"metadata": {"answer": "no"}}),
        (
            {"text": "Yes.", "group": "a", "intent": "b"},
            {"group": "a", "metadata": {"intent": "b"}},
        ),
        ({"text": "Yes.", "intent": 7}, {"group": "7", "metadata": {"intent": 7}}),
        ({"text": "Yes.", "metadata": {"a": 1}, "b": 2}, {"metadata": {"a": 1, "b": 2}}),
        ({"text": "Yes.", "metadata": '{"a": 1}'}, {"metadata": {"a": 1}}),
        ({"text": "Yes.", "metadata": "kind:faq"}, {"metadata": {"metadata": "kind:faq"}}),
        ({"text": "Yes.", "id": None, "group": "", "learned": [{"text": "A?"}]}, {}),
        ({"text": "Yes.", "id": " ", "group": "\t", "body": " ", "question": " ", "a": " "}, {}),
    ],
)
def test_fields_are_found_by_the_usual_names(
    tmp_path: Path, record: dict[str, Any], candidate: dict[str, Any]
) -> None:
    assert read(tmp_path / "a.jsonl", json.dumps(record)) == [{"text": "Yes."} | candidate]


def test_columns_may_have_any_name(tmp_path: Path) -> None:
    columns = Columns("Antwort", "Frage", "Nr", "", "Text", ["b"])
    content = "Frage,Antwort,Text,Nr,intent,a,b,\nWann?,Um 9.,Lang.,7,zeit,1,2,3\n"
    expected = {"text": "Um 9.", "examples": ["Wann?"], "id": "7", "body": "Lang."}
    assert read(tmp_path / "a.csv", content, columns) == [expected | {"metadata": {"b": "2"}}]


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.csv", "FAQ\n", "line 1: commas, semicolons or tabs separate columns"),
        ("a.csv", "When?,At 9.\n", 'line 1: no text among "When?"'),
        ("a.csv", "\ntext,b,b\n", 'line 2: the header has two columns "b"'),
        ("a.csv", "text,b\nx,1\nx\n", "line 3: 1 cell, but the header has 2"),
        ("a.csv", "text,b\nx,1\ny,z,3\n", "line 3: 3 cells, but the header has 2"),
        ("a.csv", 'text,b\n"x\ny",1\n,2\n', 'line 4, field "text": empty'),
        ("a.csv", 'text\n"x', "line 2: not CSV"),
        ("a.json", '{"text": "x"}\n{"text":\n', "line 2: not JSON"),
        ("a.json", '[{"text": "x"},\n{"text": ]', "line 2: not JSON"),
        ("a.json", '[{"text": "x"}\n{"text": "y"}]', "line 1: not JSON: expected , or ]"),
        ("a.json", '[\n{"text": "x"},\n3]', "line 3: expected an object, found a number"),
        ("a.json", '\n[{"text": "x"}', "line 2: not JSON"),
        ("a.jsonl", "Hello\n", "line 1: not JSON"),
        ("a.jsonl", '{"txt": "x", "id": "1"}', 'line 1: no text among the fields "txt", "id"'),
        ("a.jsonl", '{"text": "x", "metadata": {"a": NaN}}', 'field "metadata": not a candidate'),
        ("a.jsonl", '{"text": "x", "metadata": "{"}', 'field "metadata": not JSON'),
        ("a.jsonl", '{"text": "x", "examples": [3]}', 'field "examples": not a candidate'),
        (
            "a.jsonl",
            '{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}',
            "line 2: 'a' is also the",
        ),
        ("a.json", '{\n "data": []}', "line 1: not JSON"),
        ("a.json", '{"data": [{"text": "x"}]}', 'line 1: the objects are in the list "data"'),
        ("a.json", '["Hi!"]', "found a string; write one object a line"),
        ("a.csv", "answer;b\nx;1\n;2\n", "Of cells that were merged, only the first"),
        (
            "a.tsv",
            'answer\tb\n"Yes" it is\t1\n',
            "Double a quote inside a cell, and put quotes around such a cell",
        ),
        ("a.txt", "Frage\tAntwort\n", 'no text among "Frage", "Antwort"'),
        ("a.md", "- Hi!\n", "save a table as .csv, and a list as .txt"),
        ("a.csv", "PK\3\4", ": a workbook, or an archive: save its sheet as CSV"),
        ("a.docx", "PK", ": unknown format: expected .jsonl"),
        ("a.csv", "\n\n", ": there are no candidates"),
        ("a.csv", "text\n", ": there are no candidates"),
        ("a.jsonl", "", ": there are no candidates"),
    ],
)
def test_an_error_names_the_line_and_what_to_do(
    tmp_path: Path, name: str, content: str, what: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path / name, content)
    assert what in str(caught.value)


def test_a_column_that_is_named_must_be_there(tmp_path: Path) -> None:
    for columns in (Columns(examples="Frage"), Columns(metadata=["b", "Frage"])):
        with pytest.raises(DataError, match='no column "Frage" among "text", "b"'):
            read(tmp_path / "a.csv", "text,b\nx,y\n", columns)


def test_later_rows_of_an_answer_may_leave_cells_blank(tmp_path: Path) -> None:
    content = "id,text,question,group,body,page\na,Yes.,A?,g,Long.,7\na,Yes.,B?,,,\na,Yes.,,,,\n"
    expected = {"id": "a", "text": "Yes.", "examples": ["A?", "B?"], "group": "g", "body": "Long."}
    assert read(tmp_path / "a.csv", content) == [expected | {"metadata": {"page": "7"}}]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("h,,,", "which has another group"),
        (",Short.,,", "which has another body"),
        (",,8,", 'but "page" is "7" there and "8" here'),
        (",,,x", 'but "topic" is null there and "x" here'),
    ],
)
def test_a_later_row_of_an_answer_must_not_say_something_else(
    tmp_path: Path, row: str, what: str
) -> None:
    content = f"id,text,group,body,page,topic\na,Yes.,g,Long.,7,\na,Yes.,{row}\n"
    with pytest.raises(DataError, match=f"line 3: 'a' is also the id of line 2, {what}"):
        read(tmp_path / "a.csv", content)


def test_a_text_with_two_values_of_a_column_is_shown_with_both(tmp_path: Path) -> None:
    content = "answer,page\nYes.,7\nNo.,8\nYes.,9\n"
    with pytest.raises(DataError, match=r'line 4: the text is.*line 2.*"7" there and "9" here'):
        read(tmp_path / "a.csv", content)
    assert len(read(tmp_path / "a.csv", content, Columns(metadata=[]))) == 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"id": "7"}\n{"id": "b c", "text": "x"}\n{"id": 7}'),
        ("a.csv", "text;ID\nx;7\ny;b c\nz;7\n"),
        ("a.txt", "7\nb c\n\n7\n"),
    ],
)
def test_ids_are_read_from_any_file(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert read_ids(tmp_path / name) == ["7", "b c"]


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.jsonl", '{"id": "7"}\n{"text": "x"}', r'line 2, field "id": no id'),
        ("a.csv", "text,id\nx, \n", r'line 2, field "id": no id'),
        ("a.csv", "text,kind\nx,7\n", 'no column "id" among "text", "kind"'),
    ],
)
def test_a_record_without_an_id_is_named(
    tmp_path: Path, name: str, content: str, what: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=what):
        read_ids(tmp_path / name)


def test_bullets_of_a_list_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("- We open at nine.\n* Bye!\nWell - fine.\n")
    (note,) = CandidateFile.read(path).notes
    assert note.startswith("2 texts with the bullet of a list, which stays")


def test_a_row_of_totals_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("topic,answer,price\nvisit,We open at nine.,\nvisit,👍,\nTotal,330.50 €,330\n")
    assert CandidateFile.read(path).notes[1:] == [
        '1 text without words, first "330.50 €" in line 4: remove rows of totals'
    ]


def test_every_line_without_a_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("topic,answer\na,\nb,We open at nine.\nc, \nd,\n")
    with pytest.raises(DataError, match=r'line 2, field "answer": empty.* line 4, line 5$'):
        CandidateFile.read(path)


@pytest.mark.parametrize(
    ("cell", "shown"), [('"hi\nhey"', r'"hi\nhey"'), ('"[hi, hey]"', '"[hi, hey]"')]
)
def test_an_example_that_looks_like_several_is_told(tmp_path: Path, cell: str, shown: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"text,examples\nHello.,[shrugs] hi\nHello.,{cell}\n")
    (note,) = CandidateFile.read(path).notes
    assert note.startswith(f"1 example that may be several, first {shown} in line 3")


def test_replies_that_a_file_names_but_lacks_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [
        {"id": "day", "text": "Which day?", "group": "ask"},
        {"id": "full", "text": "It is full.", "after": ["day", "ask", "dya", 5]},
        {"id": "time", "text": "At ten?", "metadata": {"after": "day, full"}},
        {"id": "name", "text": "Your name?", "after": "dya"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert CandidateFile.read(path).notes[1:] == [
        '"after" names replies that the file lacks: "dya" in line 2, "day, full" in line 3. '
        'Several names are a JSON list, such as ["a", "b"]'
    ]


def test_a_row_without_the_id_of_its_answer_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,text,question\na,Yes.,A?\n,Yes.,B?\n,No.,C?\n,Yes.,D?\n")
    file = CandidateFile.read(path)
    assert file.notes[1:] == [
        '1 text without an id that another row has with one, first "Yes." in line 3: '
        "write the id in each row of an answer"
    ]
    assert [row.line for row in file.rows] == [2, 3, 4]
