"""Writes the data that shows how much leaked dialogues help a model.

    python -m research.leaks --train train.jsonl.xz --leaks leaks.json \\
        --validation validation.jsonl.xz --out runs/leaks
    python research/ablations.py research/leaks.toml --data runs/leaks --out runs/leaks

The first command writes two training files. `with.jsonl` has all listed dialogues and 2,000 others.
`without.jsonl` has a random dialogue with as many utterances in the place of each listed one. The
command divides the validation split into `leaked.jsonl`, the dialogues that have half of their
utterances or more in common with a listed one, and `others.jsonl`. The second command trains on
both files; `turnwise evaluate --data` measures both models on each part.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from research.corpus_overlap import in_words, leaked
from turnwise.models.data import Dialogue
from turnwise.models.dialogue_files import make_record, read_dialogues
from turnwise.models.text_files import write_jsonl
from turnwise.models.training.corpora import read_left_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--leaks", type=Path, required=True)
    parser.add_argument("--validation", type=Path, required=True)
    parser.add_argument("--others", type=int, default=2000, help="dialogues of both files")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()

    listed = read_left_out(options.leaks)
    leaks = list[Dialogue]()
    clean = list[Dialogue]()
    for dialogue in read_dialogues(options.train):
        (leaks if dialogue.id in listed else clean).append(dialogue)
    shuffled = [clean[index] for index in np.random.default_rng(1).permutation(len(clean))]
    others = shuffled[: options.others]
    left = shuffled[options.others :]
    by_length: defaultdict[int, list[Dialogue]] = defaultdict(list)
    for dialogue in left:
        by_length[len(dialogue.utterances)].append(dialogue)
    held_out = list(read_dialogues(options.validation))
    found = leaked(in_words(held_out), in_words(leaks))
    options.out.mkdir(parents=True, exist_ok=True)
    for name, dialogues in {
        "with": others + leaks,
        "without": others + [by_length[len(leak.utterances)].pop() for leak in leaks],
        "leaked": [dialogue for dialogue, leak in zip(held_out, found, strict=True) if leak],
        "others": [dialogue for dialogue, leak in zip(held_out, found, strict=True) if not leak],
    }.items():
        write_jsonl(options.out / f"{name}.jsonl", map(make_record, dialogues))
        print(f"{name}.jsonl: {len(dialogues):,} dialogues")


if __name__ == "__main__":
    main()
