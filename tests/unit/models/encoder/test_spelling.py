import json
import shutil
from pathlib import Path

import pytest

from tests.unit.models.conftest import Folder
from turnwise.models.encoder.spelling import WORDS_FILE, Spelling
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import ModelError
from turnwise.models.roles import EncoderKind, Relation, Role, RoleText
from turnwise.service.cli.models.card import card

WORDS = ["what", "where", "want", "cancel", "order", "please", "don't", "ticket", "whale"]


@pytest.fixture(scope="module")
def spelling() -> Spelling:
    return Spelling(WORDS)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("cancle", "cancel"),
        ("cancell", "cancel"),
        ("cncel", "cancel"),
        ("cancwl", "cancel"),
        ("whst", "what"),
        ("whal", "what"),  # and not "whale", which is rarer
        ("dont", "don't"),
    ],
)
def test_a_word_with_an_error_becomes_the_most_frequent_word_near_it(
    spelling: Spelling, error: str, word: str
) -> None:
    assert spelling.correct(error) == word


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Where?",
        "tickets ordered",  # the list has them without their endings
        "I want Oder",  # a name
        "where at ordr.com",
        "want ordr2",
        "wh",
        "icket",  # the first letter is missing
        "wo ist meine bestellung pleas",  # another language
        "Ördr pleäse",
        " ".join(f"order{'qxz'[index % 3]}{chr(97 + index)}" for index in range(26)),
    ],
)
def test_other_texts_stay(spelling: Spelling, text: str) -> None:
    assert spelling.correct(text) == text


def test_what_is_around_a_word_stays(spelling: Spelling) -> None:
    text = " Plese  cancle my ordre, I don\u2019t WANT it!"
    assert spelling.correct(text) == " please  cancel my order, I don\u2019t WANT it!"


def test_texts_bring_their_words_first_but_no_errors() -> None:
    texts = ["My locker is shut."] * 400 + ["A Lockre!", "A ticket for zorbing."] * 3
    spelling = Spelling(["shirt", "ticket"]).with_words_of(texts)
    assert spelling.to_text().split() == ["locker", "shut", "ticket", "zorbing", "shirt"]


@pytest.mark.parametrize(
    "pieces",
    [{"##ing": 0, "want": 2, "order": 1, "7": 3}, {"\u2581order": 0, "ing": 1, "\u2581want": 2}],
)
def test_a_vocabulary_gives_its_whole_words(pieces: dict[str, int]) -> None:
    assert Spelling.of_vocabulary(pieces).to_text() == "order\nwant"


@pytest.fixture
def folder(tiny_encoder_folder: Folder, tmp_path: Path) -> Path:
    """A copy of a model, to be changed."""
    return Path(shutil.copytree(tiny_encoder_folder(EncoderKind.TRIPLE), tmp_path / "model"))


def test_a_model_with_words_corrects_utterances_and_no_candidates(
    folder: Path, tmp_path: Path
) -> None:
    plain = UtteranceEncoder(folder, device="cpu")
    texts = ["Cancel my order", "my order please"] * 3
    lines = [
        {"id": str(number), "utterances": [{"speaker": "user", "text": text}]}
        for number, text in enumerate(texts)
    ]
    said = tmp_path / "said.jsonl"
    said.write_text("\n".join(map(json.dumps, lines)))
    card(str(folder), words=[said])
    encoder = UtteranceEncoder(folder, device="cpu")
    assert encoder.fingerprint != plain.fingerprint
    for role in Role:
        read = encoder.prefixed(RoleText("cancle it", role, Relation.OTHER))
        is_corrected = role in {Role.FIRST, Role.SECOND, Role.SAID}
        assert read.endswith("cancel it" if is_corrected else "cancle it")
    replica = tmp_path / "replica"
    card(str(folder), out=replica)
    assert (replica / WORDS_FILE).read_bytes() == (folder / WORDS_FILE).read_bytes()
    (folder / WORDS_FILE).unlink()
    assert UtteranceEncoder(folder, device="cpu").fingerprint == plain.fingerprint


@pytest.mark.parametrize("content", [b"\xff\xfe\xff", b" \n"])
def test_a_list_that_cannot_be_used_is_the_model_s_fault(folder: Path, content: bytes) -> None:
    (folder / WORDS_FILE).write_bytes(content)
    with pytest.raises(ModelError, match=r"words\.txt"):
        Spelling.of_model(folder)
