"""Noise: texts as speech recognition and fast typists write them.

A model that reads such texts in contexts, while its teacher reads the originals, learns to give
both the same vector.
"""

import re

import numpy as np

FILLERS = ("um", "uh", "well", "so", "like", "you know", "i mean", "okay so")
"""Words that people say while they think."""
ABBREVIATIONS = {
    "please": "pls",
    "thanks": "thx",
    "you": "u",
    "your": "ur",
    "are": "r",
    "because": "cuz",
    "okay": "ok",
    "want to": "wanna",
    "going to": "gonna",
    "tomorrow": "tmrw",
    "and": "&",
    "about": "abt",
}
"""Words, and what fast typists write instead."""
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
NEXT_KEYS = {
    key: row[max(0, index - 1) : index] + row[index + 1 : index + 2]
    for row in _ROWS
    for index, key in enumerate(row)
}
"""The keys on both sides of a key."""
SHORTEST_WITH_TYPO = 4
"""Characters of the shortest word that gets a typing error."""
WORDS_A_TYPO = 9
"""A text of fewer words has one typing error, a longer one has more."""

_MARKS = re.compile(
    r"(?<!\d)[.,:;!?]|[.,:;!?](?!\d)|[\"“”()…\u2013\u2014]"
)  # not those inside of numbers
_FINAL_MARK = re.compile(r"[.!?…]+\s*$")
_APOSTROPHE = re.compile(r"['\u2019]")


def add_noise(text: str, rng: np.random.Generator) -> str:
    """Return a text as it is spoken, typed fast, or with another final mark; never an empty one."""
    drawn = rng.random()
    if drawn < 0.45:
        return write_as_spoken(text, rng)
    if drawn < 0.85:
        return write_as_typed(text, rng)
    unmarked = _FINAL_MARK.sub("", text)
    return f"{unmarked}{rng.choice(['', '.', '!', '?', '...'])}" or text


def write_as_spoken(text: str, rng: np.random.Generator) -> str:
    """Return a text as a recogniser writes it: without marks, perhaps with fillers."""
    words = _MARKS.sub(" ", text).split()
    while words and rng.random() < 0.3:
        words.insert(int(rng.integers(len(words) + 1)), str(rng.choice(FILLERS)))
    return " ".join(words) or text


def write_as_typed(text: str, rng: np.random.Generator) -> str:
    """Return a text as somebody types it in a hurry: few marks, abbreviations, errors."""
    dropped = _MARKS if rng.random() < 0.4 else _FINAL_MARK
    hurried = dropped.sub(" ", text)
    if rng.random() < 0.4:
        hurried = _APOSTROPHE.sub("", hurried)
    if rng.random() < 0.35:
        for long, short in ABBREVIATIONS.items():
            hurried = re.sub(rf"\b{long}\b", short, hurried, flags=re.IGNORECASE)
    words = hurried.split()
    if words and rng.random() < 0.75:
        for index in rng.integers(len(words), size=1 + len(words) // WORDS_A_TYPO):
            words[index] = mistype(words[index], rng)
    return " ".join(words) or text


def mistype(word: str, rng: np.random.Generator) -> str:
    """Return a word with a typing error: a letter that is swapped, missing, doubled or another.

    The first letter stays, and so does a short word.
    """
    if len(word) < SHORTEST_WITH_TYPO:
        return word
    index = int(rng.integers(1, len(word) - 1))
    before = word[:index]
    letter = word[index]
    after = word[index + 1 :]
    near = NEXT_KEYS.get(letter.lower(), letter)
    variants = (
        before + after[0] + letter + after[1:],
        before + after,
        before + letter + letter + after,
        before + str(rng.choice(list(near))) + after,
    )
    return variants[int(rng.integers(len(variants)))]
