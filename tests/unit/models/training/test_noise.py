import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.models.training.noise import add_noise, mistype, write_as_spoken, write_as_typed

WORDS = ("its", "what")
KEPT = ("No", "I'd", "like", "two", "it", "costs", "3.50", "at", "10:30")


@given(st.text(min_size=1), st.integers(0, 2**32 - 1))
def test_noise_leaves_something_to_read(text: str, seed: int) -> None:
    for write in (add_noise, write_as_spoken, write_as_typed):
        assert write(text, np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(20))
def test_speech_keeps_the_words_and_the_marks_inside_numbers(seed: int) -> None:
    heard = write_as_spoken(
        "No, I'd like two: it costs 3.50, at 10:30!", np.random.default_rng(seed)
    )
    words = iter(heard.split())
    assert all(word in words for word in KEPT)
    assert not set(heard.replace("3.50", "").replace("10:30", "")) & set(".,:!")


def test_typists_make_errors_and_abbreviate() -> None:
    text = "Thanks, could you please tell me about the delivery tomorrow?"
    seen = " ".join(write_as_typed(text, np.random.default_rng(seed)) for seed in range(60))
    assert {"thx", "pls", "abt", "tmrw"} & set(seen.lower().split())
    assert len(set(seen.split())) > 3 * len(text.split())


@given(st.text("abcdefgh", min_size=4, max_size=12), st.integers(0, 2**32 - 1))
def test_a_typing_error_keeps_the_first_letter(word: str, seed: int) -> None:
    wrong = mistype(word, np.random.default_rng(seed))
    assert abs(len(wrong) - len(word)) <= 1
    assert wrong[0] == word[0]


def test_a_word_of_four_letters_is_the_shortest_with_a_typing_error() -> None:
    typed = {word: {mistype(word, np.random.default_rng(n)) for n in range(20)} for word in WORDS}
    assert typed["its"] == {"its"}
    assert len(typed["what"]) > 3
