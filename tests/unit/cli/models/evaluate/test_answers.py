import json
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

from turnwise.models.text_files import write_jsonl
from turnwise.service.cli.main import app


def said(*texts: str) -> Iterator[dict[str, str]]:
    for speaker, text in zip("ABAB", texts, strict=True):
        yield {"speaker": speaker, "text": text}


def test_answers_writes_a_row_a_number_of_examples(triple: str, tmp_path: Path) -> None:
    answers = tmp_path / "a.jsonl"
    outside = tmp_path / "o.jsonl"
    out = tmp_path / "out"
    words = ["bread", "rain", "music"]
    phrasings = {word: [f"{word} {other}" for other in words] for word in words}
    write_jsonl(
        answers,
        [{"id": word, "texts": [word], "examples": phrasings[word]} for word in words],
    )
    write_jsonl(outside, [{"text": "lamp"}])
    dialogues = tmp_path / "recurring.jsonl"
    write_jsonl(
        dialogues,
        [
            {"id": f"{number}-{word}", "utterances": [*said(f"lamp {number}", "river", word, word)]}
            for number in range(20)
            for word in words
        ],
    )
    options = ["--data", answers, "--outside", outside, "--dialogues", dialogues]
    options += ["--examples", 0, 1, "--covered", 0.5]
    command = ["evaluate", "answers", *options, "--model", triple, "--out", out]
    result = CliRunner().invoke(app, list(map(str, command)))
    assert result.exit_code == 0, result.output
    rows = json.loads((out / "results.json").read_text())["rows"]
    *names, without, with_one = [row["system"].partition(" · ")[2] for row in rows]
    assert names == ["0 examples", "1 example for 50%"]
    assert without.endswith("recurring.jsonl, 0 examples")
    assert with_one.endswith("recurring.jsonl, 1 example for 50%")
    assert {"r@1", "r@3", "mrr", "standard_error"} <= rows[0]["metrics"].keys()
    assert "3 answers, 1 question outside" in (out / "results.md").read_text()


def test_answers_may_be_any_file_of_candidates(triple: str, tmp_path: Path) -> None:
    rows = ["bread?,bread.,shop", "bread bread?,bread.,shop", "rain?,rain.,", "rain rain?,rain.,"]
    rows += ["bread lamp?,more bread.,shop", ",music.,"]
    (tmp_path / "a.csv").write_text("\n".join(["Question,Answer,Group", *rows]))
    (tmp_path / "o.txt").write_text("lamp\n")
    files = ["--data", tmp_path / "a.csv", "--outside", tmp_path / "o.txt", "--examples", 1]
    command = ["evaluate", "answers", *files, "--model", triple, "--out", tmp_path]
    result = CliRunner().invoke(app, list(map(str, command)))
    assert result.exit_code == 0, result.output
    made = (tmp_path / "results.md").read_text()
    assert "2 answers, 1 question outside" in made
    assert "Nobody asks for 1 other with fewer than two examples." in made
