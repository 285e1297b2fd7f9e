from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.models.conftest import Encoders
from turnwise.models.errors import DataError
from turnwise.models.evaluation.conversational_search import SearchSet, evaluate_search, read_search
from turnwise.models.roles import EncoderKind
from turnwise.models.text_files import write_jsonl

PASSAGES = {word: word for word in ("bread", "rain", "music")}
FORMS = ("last utterance", "joined utterances", "running query", "rewrite")


def user(text: str, **fields: object) -> dict[str, Any]:
    return {"speaker": "user", "text": text, **fields}


def bot(text: str) -> dict[str, Any]:
    return {"speaker": "bot", "text": text}


def read(folder: Path, *conversations: Mapping[str, Any]) -> SearchSet:
    write_jsonl(folder / "c.jsonl", conversations)
    return read_search([folder / "c.jsonl"], PASSAGES)


def test_an_utterance_with_passages_is_a_question(tmp_path: Path) -> None:
    asked = user("rain?", passages=["rain", "music"], rewrite="rain river?")
    said = [user("lamp"), user("bread"), bot("letter"), asked, bot("rain"), user("music")]
    data = read(tmp_path, {"id": "c", "utterances": said})
    (question,) = data.questions
    assert [each.text for each in question.context] == ["lamp bread", "letter", "rain?"]
    assert question.right.tolist() == [False, True, True]
    assert (question.rewrite, question.id) == ("rain river?", "c")
    assert data.passages == ("bread", "rain", "music")


@pytest.mark.parametrize(
    ("utterances", "error"),
    [
        ([user("rain?")], "no utterance has passages"),
        ([user("rain?", passages=["lamp"])], "no passage has the id 'lamp'"),
        ([user("rain?", passages=["bread", "rain", "music"])], "names all passages"),
        ([user("rain?", passages=[])], "expected a list that is not empty"),
        ([user("rain?", passages=["rain"], rewrite="")], "rewrite"),
    ],
)
def test_an_error_says_what_is_wrong(
    tmp_path: Path, utterances: list[dict[str, Any]], error: str
) -> None:
    with pytest.raises(DataError, match=error):
        read(tmp_path, {"utterances": utterances})


def test_each_form_reads_its_part_of_the_conversation(
    tmp_path: Path, tiny_encoder: Encoders
) -> None:
    first = [user("music"), bot("rain rain bread"), user("lamp", passages=["rain"])]
    second = [user("lamp", passages=["bread"], rewrite="bread")]
    data = read(tmp_path, {"utterances": first}, {"utterances": second})
    encoders = {"tiny": tiny_encoder(EncoderKind.TRIPLE)}
    rows = {row.system: row for row in evaluate_search(encoders, data, utterances=2, words=2)}
    assert [*rows] == [
        *(f"BM25 · {form}" for form in FORMS if form != "running query"),
        *(f"tiny · {form}" for form in FORMS),
    ]
    assert rows["BM25 · last utterance"].metrics["r@1"] == pytest.approx(1 / 3)
    assert rows["BM25 · joined utterances"].metrics["r@1"] == pytest.approx((1 + 1 / 3) / 2)
    rewritten = rows["BM25 · rewrite"]
    assert rewritten.metrics["r@1/turns=1"] == 1
    assert rewritten.metrics["r@1/turns=3-4"] == pytest.approx(1 / 3)
    assert rewritten.outcomes
    assert rewritten.outcomes.mean == rewritten.metrics["r@1"]


def test_a_passage_that_was_shown_is_not_offered_again(tmp_path: Path) -> None:
    said = [user("lamp"), bot("Rain."), user("rain bread", passages=["bread"])]
    again = [user("bread music", passages=["music"]), user("rain", passages=["rain"])]
    data = read(tmp_path, {"utterances": [*said, bot("letter"), *again]})
    assert [question.shown.tolist() for question in data.questions] == [
        [False, True, False],
        [True, True, False],
        [True, False, True],
    ]
    row, *_ = evaluate_search({}, data, utterances=3, words=20)
    assert row.metrics["r@1"] == 1
