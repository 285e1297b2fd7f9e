"""Measures how often the first candidate of a preview is that of the whole turn.

    TURNWISE_DEFAULT_POOL=examples/replies.jsonl turnwise serve
    python research/previews.py --data models/training/data/everyday/plain.jsonl.xz

Of each dialogue, two utterances are posted and the third is previewed: whole, without its final
mark, and without its last word.
"""

import argparse
from itertools import islice
from pathlib import Path

from turnwise import Client
from turnwise.models.data import Dialogue
from turnwise.models.dialogue_files import read_dialogues

MARKS = ".!?"
CUTS = ("without the final mark", "without the last word")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--count", type=int, default=500)
    options = parser.parse_args()

    long = (each for each in read_dialogues(options.data) if len(each.utterances) > 2)
    same = dict.fromkeys(CUTS, 0)
    count = 0
    with Client(options.url) as client:
        for dialogue in islice(long, options.count):
            whole, *cut = first_candidates(client, dialogue)
            count += 1
            for name, candidate in zip(CUTS, cut, strict=True):
                same[name] += candidate == whole
    print(f"{count} turns; the first candidate stays the same")
    for name, number in same.items():
        print(f"{name}: {number / count:.1%}")


def first_candidates(client: Client, dialogue: Dialogue) -> list[str]:
    """Return the first candidate after the third utterance: of the whole, and of each cut."""
    first, second, third = dialogue.texts[:3]
    unmarked = third.rstrip(MARKS)
    shorter = unmarked.rpartition(" ")[0] or unmarked
    with client.session(forget=True) as session:
        session.turn("user", first, respond=False)
        session.turn("bot", second)
        return [
            session.turn("user", text, commit=False, top_k=1).candidates[0].id
            for text in (third, unmarked, shorter)
        ]


if __name__ == "__main__":
    main()
