"""Measures whether a model finds replies in other languages than English.

    python research/languages.py --data research/languages.jsonl --model FOLDER

`languages.jsonl` has 40 replies of `examples/replies.jsonl` and a message for each, in five
languages. For each language, prints how often the right reply is first and among the first three:
of the 40 in the same language, and of the 40 in English.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from turnwise.models import DEFAULT_MODEL
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import Relation, Role

LANGUAGES = ("en", "de", "fr", "es", "zh")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", nargs="+", default=[str(DEFAULT_MODEL)])
    options = parser.parse_args()

    cases = [json.loads(line) for line in options.data.read_text(encoding="utf-8").splitlines()]
    print(f"{'':24}{'same language':^30}{'English replies':^30}")
    for name in options.model:
        encoder = UtteranceEncoder(name)
        replies = {
            language: encoder.encode([case["reply"][language] for case in cases], Role.AFTER)
            for language in LANGUAGES
        }
        for language in LANGUAGES:
            texts = [case["said"][language] for case in cases]
            said = encoder.encode(texts, Role.SECOND, Relation.OTHER)
            cells = []
            for pool in (language, "en"):
                scores = said @ replies[pool].T
                ranks = 1 + (scores > np.diag(scores)[:, None]).sum(axis=1)
                cells.append(f"first {(ranks == 1).mean():.3f}  three {(ranks <= 3).mean():.3f}")
            print(f"{encoder.name:20}{language:4}{cells[0]:^30}{cells[1]:^30}", flush=True)


if __name__ == "__main__":
    main()
