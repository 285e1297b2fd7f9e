"""Counts the texts that a corpus shares, word for word, with others, such as held-out splits.

    python research/corpus_overlap.py --data train.jsonl.xz --against validation.jsonl.xz ...

Counts sequences of eight words and utterances of at least six, letters and digits only, each
distinct one once, and shows some.
"""

import argparse
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from turnwise.models.data import read_dialogues

SEQUENCE, UTTERANCE = 8, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--against", type=Path, nargs="+", required=True)
    parser.add_argument("--show", type=int, default=5, help="examples of each kind")
    options = parser.parse_args()

    sequences, utterances = distinct(options.data)
    for path in options.against:
        other_sequences, other_utterances = distinct(path)
        for of, ours, theirs in (
            (f"sequences of {SEQUENCE} words", sequences, other_sequences),
            (f"utterances of {UTTERANCE} words or more", utterances, other_utterances),
        ):
            shared = ours & theirs
            print(f"{path}: {len(shared):,} of {len(ours):,} {of}")
            for words in islice(sorted(shared), options.show):
                print("   ", " ".join(words))


def distinct(path: Path) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
    """Return the sequences of words of a corpus, and its utterances as words."""
    spoken = set(texts(path))
    sequences = {
        words[start : start + SEQUENCE]
        for words in spoken
        for start in range(len(words) - SEQUENCE + 1)
    }
    return sequences, {words for words in spoken if len(words) >= UTTERANCE}


def texts(path: Path) -> Iterator[tuple[str, ...]]:
    for dialogue in read_dialogues(path):
        for utterance in dialogue.utterances:
            letters = re.sub(r"[^a-z0-9\s]", "", utterance.text.lower())
            yield tuple(letters.split())


if __name__ == "__main__":
    main()
