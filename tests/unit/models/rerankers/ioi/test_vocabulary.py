from pathlib import Path

import pytest

from turnwise.models.errors import ModelError, TrainingError
from turnwise.models.rerankers.ioi.vocabulary import (
    FIRST,
    UNKNOWN,
    Vocabulary,
    word_vectors,
    words_and_signs,
)

TEXTS = ["The cat sat .", "the dog sat", "The cat ran"] * 20


def test_both_styles_of_tokenisation_split_alike() -> None:
    assert words_and_signs("I don't know.") == words_and_signs("i don ' t know .")


def test_unknown_words_and_texts_without_words_have_a_place() -> None:
    vocabulary = Vocabulary(("cat",))
    assert vocabulary.ids("cat zebra", 9) == [FIRST, UNKNOWN]
    assert vocabulary.ids("  ", 9) == [UNKNOWN]


def test_a_text_is_cut_at_the_limit() -> None:
    assert Vocabulary(("a", "d")).ids("a b c d", 3) == [FIRST, UNKNOWN, UNKNOWN]


def test_frequent_words_come_first_and_rare_ones_not_at_all() -> None:
    vocabulary, vectors = word_vectors([*TEXTS, "zebra"], 8, min_count=2, epochs=1, seed=0)
    assert vocabulary.words[0] == "the"
    assert "zebra" not in vocabulary.words
    assert vectors.shape == (len(vocabulary), 8)
    assert not vectors[:FIRST].any()
    with pytest.raises(TrainingError, match="min_count: no word of the corpora occurs 2 times"):
        word_vectors(["one", "two"], 8, min_count=2, epochs=1, seed=0)


def test_a_vocabulary_comes_back_from_its_file(tmp_path: Path) -> None:
    Vocabulary(("cät", "dog")).save(tmp_path / "words.json")
    assert Vocabulary.load(tmp_path / "words.json").words == ("cät", "dog")


@pytest.mark.parametrize("content", ["{", '{"a": 1}', "[1]"])
def test_a_broken_vocabulary_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "words.json").write_text(content)
    with pytest.raises(ModelError, match=r"words\.json"):
        Vocabulary.load(tmp_path / "words.json")
