"""Measures how the cosine of two candidates depends on how similar their meanings are.

    python research/near_repeats.py --data sts_b_en/train.jsonl.xz

Prints, for several thresholds, the share of pairs at or above it: of pairs that people call equal
in meaning (4.5 of 5 or more), and of pairs that people call different (below 3).
"""

import argparse
from pathlib import Path

import numpy as np

from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.similarity import read_pairs
from turnwise.models.roles import Role

EQUAL = 4.5
DIFFERENT = 3.0
THRESHOLDS = (0.75, 0.8, 0.85, 0.9, 0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()

    pairs = read_pairs([options.data])
    encoder = UtteranceEncoder()
    one = encoder.encode([pair.said.target.text for pair in pairs], Role.AFTER)
    other = encoder.encode([pair.other for pair in pairs], Role.AFTER)
    cosine = (one * other).sum(axis=1)
    agreement = np.array([pair.score for pair in pairs])
    print(f"{len(pairs)} pairs\ncosine  equal  different")
    for threshold in THRESHOLDS:
        near = cosine >= threshold
        shares = near[agreement >= EQUAL].mean(), near[agreement < DIFFERENT].mean()
        print(f"{threshold:6.2f}  {shares[0]:5.3f}  {shares[1]:9.3f}")


if __name__ == "__main__":
    main()
