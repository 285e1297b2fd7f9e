"""`turnwise evaluate journal` on a file as `turnwise journal export` writes it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnwise.models.errors import DataError
from turnwise.models.evaluation.journal import read_choices

SHOWN = ["bread", "rain", "train"]


def export(path: Path, *replies: dict[str, object]) -> Path:
    said = [{"speaker": "user", "text": "garden"}]
    for reply in replies:
        said += [{"speaker": "bot", **reply}, {"speaker": "user", "text": "letter"}]  # type: ignore[dict-item]
    path.write_text(json.dumps({"id": "n/s", "utterances": said}))
    return path


def test_choices_are_ranked_by_models_and_as_they_were_offered(
    tmp_path: Path, triple: str, evaluate: Callable[..., Any]
) -> None:
    path = export(
        tmp_path / "choices.jsonl",
        {"text": "It rains.", "shown": SHOWN, "chosen": "rain"},
        {"text": "river", "shown": [*SHOWN, "bread"], "chosen": "bread"},  # ranks first, not last
        {"text": "river", "rejected": ["bread"]},
        {"text": "river", "shown": ["river"], "chosen": "river"},
    )
    written = evaluate("journal", "--data", path, "--model", triple)
    assert written.systems[0] == "as offered"
    assert "tiny-triple · mean" in written.systems
    metrics = written.json["rows"][0]["metrics"]
    assert metrics["p@1"] == pytest.approx((0 + 1) / 2)
    assert metrics["mrr"] == pytest.approx((1 / 2 + 1) / 2)
    choices = read_choices([path])
    texts = [[said.text for said in context.utterances] for context in choices.split.contexts]
    assert texts == [["garden"], ["garden", "It rains.", "letter"]]
    assert {context.target.speaker for context in choices.split.contexts} == {"bot"}
    other = path.with_name("other.jsonl")
    other.write_text(path.read_text())
    assert read_choices([path, other]).split.dialogues.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({"text": "river"}, "no reply in it that was chosen"),
        (
            {"text": "a river", "shown": ["a river", "a\nriver"], "chosen": "a river"},
            "no reply in it that was chosen",
        ),
        ({"text": "river", "chosen": "rain"}, r'utterances\[1\].shown": missing'),
        (
            {"text": "river", "chosen": "lamp", "shown": SHOWN},
            r'utterances\[1\].chosen": is not among',
        ),
    ],
)
def test_a_file_without_choices_is_named(
    tmp_path: Path, reply: dict[str, object], message: str
) -> None:
    path = export(tmp_path / "choices.jsonl", reply)
    with pytest.raises(DataError, match=message):
        read_choices([path])
