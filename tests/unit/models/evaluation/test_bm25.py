from collections import Counter
from math import log

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turnwise.models.evaluation.bm25 import BM25, K1, B, plain_words

WORDS = st.lists(st.sampled_from(["tea", "milk", "sugar", "cup"]), max_size=6).map(" ".join)


def okapi(query: str, document: str, documents: list[str]) -> float:
    counts = Counter(plain_words(document))
    total = 0.0
    mean = sum(len(plain_words(d)) for d in documents) / len(documents)
    for word in plain_words(query):
        holding = sum(word in plain_words(d) for d in documents)
        idf = log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
        length = K1 * (1 - B + B * len(plain_words(document)) / mean) if mean else K1
        total += idf * counts[word] * (K1 + 1) / (counts[word] + length)
    return total


@given(WORDS, st.lists(WORDS, min_size=1, max_size=5))
def test_scores_are_those_of_the_equation(query: str, documents: list[str]) -> None:
    expected = [okapi(query, document, documents) for document in documents]
    np.testing.assert_allclose(BM25(documents).scores(query), expected, rtol=1e-5, atol=1e-6)


def test_case_and_punctuation_do_not_count() -> None:
    scores = BM25(["More TEA!", "no coffee"]).scores("tea, please")
    assert scores[0] > scores[1] == 0
