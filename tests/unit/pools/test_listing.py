"""The search for words in the candidates of a pool."""

import unicodedata
from typing import Literal

import pytest

from turnwise.service.pools import Candidate
from turnwise.service.pools.listing import WordSearch


@pytest.mark.parametrize("words", ["Müller", "MÜLLER", "dr. mü", "GROSS", " tooth ", "a-1"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_words_are_found_however_unicode_writes_them(
    words: str, form: Literal["NFC", "NFD"]
) -> None:
    text = "Dr. Müller and Frau Groß are here."
    candidate = Candidate.of(text, "a-1", examples=["My tooth hurts"])
    search = WordSearch.of(unicodedata.normalize(form, words), in_learned=True)
    assert search
    assert search.accepts(candidate)
    assert not search.accepts(Candidate.of("Bye", "b"))
