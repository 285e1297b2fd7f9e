from pathlib import Path
from typing import Any

import pytest

from tests.unit.models.conftest import Encoders
from turnwise.models.data import Utterance
from turnwise.models.errors import DataError
from turnwise.models.evaluation.minimal_pairs import (
    MinimalPair,
    evaluate_minimal_pairs,
    read_minimal_pairs,
)
from turnwise.models.roles import EncoderKind
from turnwise.models.text_files import write_jsonl

ASKED = {"speaker": "bot", "text": "letter?"}
YES_NO = {
    "kind": "yes_no",
    "context": [ASKED],
    "answers": ["bread", "rain"],
    "replies": ["bread train", "winter rain"],
}


def user(text: str) -> Utterance:
    return Utterance("user", text)


def test_both_contexts_begin_alike(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "pairs.jsonl", [YES_NO])
    (pair,) = read_minimal_pairs([tmp_path / "pairs.jsonl"])
    asked = Utterance("bot", "letter?")
    assert pair.contexts == ((asked, user("bread")), (asked, user("rain")))
    assert [example.labels for example in pair.examples] == [(1, 0), (0, 1)]
    assert {example.speaker for example in pair.examples} == {"bot"}


def test_contexts_may_begin_differently(tmp_path: Path) -> None:
    beginnings = [[{"speaker": "user", "text": word}, ASKED] for word in ("river", "lamp")]
    line: dict[str, Any] = {**YES_NO, "contexts": beginnings, "answers": ["music", "music"]}
    del line["context"]
    write_jsonl(tmp_path / "pairs.jsonl", [line])
    (pair,) = read_minimal_pairs([tmp_path / "pairs.jsonl"])
    assert [context[0].text for context in pair.contexts] == ["river", "lamp"]
    assert [context[-1].text for context in pair.contexts] == ["music", "music"]


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("answers", ["yes"], "expected two, found 1"),
        ("replies", ["rain", "rain"], "must differ"),
        ("context", "bread", "expected a list"),
        ("contexts", [[], [3]], "contexts[1][0]: expected an object"),
    ],
)
def test_an_error_names_the_field(tmp_path: Path, field: str, value: object, error: str) -> None:
    write_jsonl(tmp_path / "pairs.jsonl", [{**YES_NO, field: value}])
    with pytest.raises(DataError) as raised:
        read_minimal_pairs([tmp_path / "pairs.jsonl"])
    assert f"{field}" in str(raised.value)
    assert error.rpartition(": ")[2] in str(raised.value)


def test_a_pair_is_right_if_both_replies_are(tiny_encoder: Encoders) -> None:
    pairs = [
        MinimalPair("word", ((user("bread"),), (user("rain"),)), ("bread", "rain")),
        MinimalPair("one", ((user("bread"),), (user("bread"),)), ("bread", "rain")),
    ]
    models = {"tiny": tiny_encoder(EncoderKind.SINGLE)}
    rows = {row.system: row for row in evaluate_minimal_pairs(models, pairs)}
    assert {"random", "BM25"} < rows.keys()
    bm25 = rows["BM25"]
    assert bm25.metrics == {"both": 0.5, "single": 0.75, "both/one": 0.0, "both/word": 1.0}
    assert bm25.outcomes
    assert bm25.outcomes.mean == 0.5
    assert "tiny · last utterance" in rows
