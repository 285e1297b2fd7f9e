import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turnwise.service.cli.main import app

run = CliRunner().invoke


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_tuples_are_answered_and_scored(tmp_path: Path) -> None:
    items, asked, answers, out = (tmp_path / f"{name}.jsonl" for name in "iqas")
    items.write_text("\n".join(json.dumps({"id": f"{n:02}"}) for n in range(15)))
    result = run(app, ["evaluate", "best-worst", "tuples", str(items), "--out", str(asked)])
    assert result.exit_code == 0, result.output
    assert "30 tuples" in result.output
    answered = [
        {"items": three["items"], "best": max(three["items"]), "worst": min(three["items"])}
        for three in lines(asked)
    ]
    people = [answer | {"annotator": name} for answer in answered for name in "ab"]
    answers.write_text("\n".join(map(json.dumps, people)))
    result = run(app, ["evaluate", "best-worst", "scores", str(answers), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "alpha of ratings, ordinal: 1.000" in result.output
    assert "split-half reliability, 100 splits: 1.000" in result.output
    scores = {line["id"]: line["score"] for line in lines(out)}
    assert len(scores) == 15
    assert (scores["00"], scores["14"]) == (0, 1)


@pytest.mark.parametrize(
    ("answered", "reliability"), [(["xz"], "not defined"), (["xz", "zx"], "-1.000")]
)
def test_what_answers_leave_undefined_is_printed(
    tmp_path: Path, answered: list[str], reliability: str
) -> None:
    answers = tmp_path / "answers.jsonl"
    out = tmp_path / "scores.jsonl"
    said = [
        {"items": ["x", "y", "z"], "best": best, "worst": worst, "annotator": best}
        for best, worst in answered
    ]
    answers.write_text("\n".join(map(json.dumps, said)))
    result = run(app, ["evaluate", "best-worst", "scores", str(answers), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert ("alpha of ratings, nominal: not defined" in result.output) == (len(answered) == 1)
    assert f"split-half reliability, 100 splits: {reliability}" in result.output
    assert "Spearman-Brown: not defined" in result.output
