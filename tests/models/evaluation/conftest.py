"""Dialogues of made-up sentences."""

from itertools import cycle

import numpy as np
import pytest

from models.dialogue import Dialogue, Utterance

WORDS = ["bread", "rain", "train", "music", "garden", "letter", "winter", "river", "window", "lamp"]


@pytest.fixture(scope="session")
def dialogues() -> list[Dialogue]:
    """Eight dialogues of 3 to 12 utterances, one of them between three people."""
    generator = np.random.default_rng(7)
    made = []
    for number, length in enumerate((12, 3, 11, 4, 6, 9, 12, 10)):
        speakers = cycle("ABC" if number == 2 else "AB")
        texts = (" ".join(generator.choice(WORDS, 3)) for _ in range(length))
        made.append(Dialogue(str(number), tuple(map(Utterance, speakers, texts))))
    return made
