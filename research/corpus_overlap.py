"""Counts the texts that a corpus shares, word for word, with others, such as held-out splits.

    python research/corpus_overlap.py --data train.jsonl.xz [--leave-out leaks.json]
        --against validation.jsonl.xz ...

Counts distinct sequences of eight words and distinct utterances of at least six (letters and digits
only), and shows some. Counts the dialogues of the others that have half of these utterances or more
in common with a single dialogue of the corpus.
"""

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from turnwise.models.data import Dialogue
from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.training.config import CorpusSource
from turnwise.models.training.corpora import read_source

SEQUENCE = 8
UTTERANCE = 6
Words = tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--leave-out", help="a list of dialogues of --data, as in a recipe")
    parser.add_argument("--against", type=Path, nargs="+", required=True)
    parser.add_argument("--show", type=int, default=5, help="examples of each kind")
    options = parser.parse_args()

    source = CorpusSource(path=options.data, leave_out=options.leave_out)
    ours = in_words(read_source(source, Path))
    for path in options.against:
        theirs = in_words(read_dialogues(path))
        for of, mine, others in (
            (f"sequences of {SEQUENCE} words", sequences(ours), sequences(theirs)),
            (f"utterances of {UTTERANCE} words or more", utterances(ours), utterances(theirs)),
        ):
            shared = mine & others
            print(f"{path}: {len(shared):,} of {len(mine):,} {of}")
            for words in islice(sorted(shared), options.show):
                print("   ", " ".join(words))
        leaks = sum(leaked(theirs, ours))
        print(f"{path}: {leaks:,} of its {len(theirs):,} dialogues are in one of {options.data}")


def in_words(dialogues: Iterable[Dialogue]) -> list[list[Words]]:
    """Return the utterances of each dialogue as words."""
    return [
        [tuple(re.sub(r"[^a-z0-9\s]", "", said.text.lower()).split()) for said in one.utterances]
        for one in dialogues
    ]


def sequences(dialogues: list[list[Words]]) -> set[Words]:
    return {
        words[start : start + SEQUENCE]
        for dialogue in dialogues
        for words in dialogue
        for start in range(len(words) - SEQUENCE + 1)
    }


def utterances(dialogues: list[list[Words]]) -> set[Words]:
    return {words for dialogue in dialogues for words in dialogue if len(words) >= UTTERANCE}


def leaked(dialogues: list[list[Words]], others: list[list[Words]]) -> list[bool]:
    """Return for each dialogue whether one of the others has half of its utterances or more."""
    standing = defaultdict(set)
    for number, other in enumerate(others):
        for words in utterances([other]):
            standing[words].add(number)
    found = []
    for dialogue in dialogues:
        said = utterances([dialogue])
        met = Counter(number for words in said for number in standing[words])
        found.append(2 * max(met.values(), default=0) >= max(len(said), 1))
    return found


if __name__ == "__main__":
    main()
