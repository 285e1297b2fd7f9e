from string import ascii_letters, ascii_lowercase

import pytest

from turnwise.models.encoder.scripts import Scripts

LATIN = [f"{first}{last}" for first in ascii_lowercase for last in ascii_letters]
CHINESE = [chr(code) for code in range(0x4E00, 0x4E00 + 500)]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("Where is my order?", True),
        ("Où est ma commande ?", True),
        ("42?!", True),
        ("", True),
        ("ok 👍", True),
        ("我的订单在哪里", False),
        ("Где мой заказ?", False),
        ("iPhone 我的订单在哪里", False),
        ("👍", False),
    ],
)
def test_half_of_the_letters_must_be_in_a_script_with_many_word_pieces(
    text: str, known: bool
) -> None:
    assert Scripts([*LATIN, *CHINESE]).knows(text) is known


def test_a_vocabulary_with_many_chinese_characters_knows_them() -> None:
    many = [chr(code) for code in range(0x4E00, 0x4E00 + 2000)]
    assert Scripts([*LATIN, *many]).knows("我的订单在哪里")


@pytest.mark.parametrize("pieces", [LATIN[:100], [*LATIN, "\u0120the"]])
def test_a_small_vocabulary_or_one_of_bytes_cannot_tell(pieces: list[str]) -> None:
    assert Scripts(pieces).knows("我的订单在哪里")
