import json
from pathlib import Path

from typer.testing import CliRunner

from turnwise.service.cli.main import app

SAMPLE = Path(__file__).parents[5] / "examples" / "search"


def test_the_sample_gives_a_row_a_form_of_the_questions(triple: str, tmp_path: Path) -> None:
    files = ["--data", SAMPLE / "conversations.jsonl", "--passages", SAMPLE / "passages.jsonl"]
    options = ["--utterances", 3, "--words", 10, "--model", triple, "--out", tmp_path]
    command = ["evaluate", "conversational-search", *files, *options]
    result = CliRunner().invoke(app, list(map(str, command)))
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["task"] == "conversational-search"
    assert [row["system"].partition(" · ")[2] for row in written["rows"]] == [
        *("last utterance", "joined utterances", "rewrite"),
        *("last utterance", "joined utterances", "running query", "rewrite"),
    ]
    for row in written["rows"]:
        assert {"r@1", "mrr", "ndcg@10", "r@1/turns=1", "standard_error"} <= row["metrics"].keys()
    assert "40 questions, 24 passages" in (tmp_path / "results.md").read_text()


def test_passages_may_be_any_file_of_candidates(triple: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("id;answer\npool;We swim.\nbar;We drink.\n")
    asked = {"speaker": "user", "text": "Swim?", "passages": ["pool"]}
    (tmp_path / "c.jsonl").write_text(json.dumps({"utterances": [asked]}))
    files = ["--data", tmp_path / "c.jsonl", "--passages", tmp_path / "p.csv"]
    command = ["evaluate", "conversational-search", *files, "--model", triple, "--out", tmp_path]
    result = CliRunner().invoke(app, list(map(str, command)))
    assert result.exit_code == 0, result.output
    assert "1 question, 2 passages" in (tmp_path / "results.md").read_text()
