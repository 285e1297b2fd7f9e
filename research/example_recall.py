"""Measures the recall of the approximate search for examples in a large pool.

    python -m research.example_recall [--size 100000] [--examples 3]

The vectors of the examples are mixtures of those of the example replies, with noise. The index is
built and tuned as by the service. Recall@10 is measured on utterances that are no examples: the
share of the ten candidates of an exact search for each that the index finds. The milliseconds are
processor time, of one thread. Building the index takes minutes on two cores.
"""

import argparse
import json
import time
from collections.abc import Sequence
from itertools import islice

import numpy as np

from benchmarks.pools import REPLIES, SEEDS, plain_encoder, pool_like, replies, sayings
from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import Role
from turnwise.service.pools import Candidate
from turnwise.service.pools.encoding import draw_contexts
from turnwise.service.pools.memory.examples import ExampleIndex, Examples
from turnwise.service.pools.memory.flat import FlatIndex
from turnwise.service.pools.memory.ivf import IvfIndex, build_ivf
from turnwise.service.pools.memory.upkeep import EXAMPLES_WIDENING

QUERIES = 500
TOP = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=100_000, help="number of candidates")
    parser.add_argument("--examples", type=int, default=3, help="examples of each candidate")
    options = parser.parse_args()

    encoder = plain_encoder()
    examples = make_examples(encoder, options.size, options.examples)
    flat = FlatIndex(examples.vectors)
    index = build_example_index(encoder, flat)

    asked = encode_said(encoder, [*islice(sayings(next(SEEDS)), QUERIES)])
    exact = ExampleIndex(examples, flat)
    approximate = ExampleIndex(examples, index)
    best = [exact.search(said, TOP)[0] for said in asked]
    begin = time.process_time()
    found = [approximate.search(said, TOP)[0] for said in asked]
    milliseconds = 1000 * (time.process_time() - begin) / len(asked)
    shares = [np.isin(*pair).mean() for pair in zip(best, found, strict=True)]
    print(f"{options.size} candidates with {options.examples} examples each")
    print(f"{index.lists} lists, {index.probes} probed, {index.short_list} scored exactly")
    print(f"recall@10 {index.recall:.3f} of the queries that tuned it, {np.mean(shares):.3f} now")
    print(f"{milliseconds:.2f} ms a search")


def make_examples(encoder: UtteranceEncoder, candidates: int, each: int) -> Examples:
    """Return examples of candidates, as many of each."""
    lines = map(json.loads, REPLIES.read_text(encoding="utf-8").splitlines())
    known = [example for line in lines for example in line.get("examples", ())]
    vectors = pool_like(encode_said(encoder, known), candidates * each).astype(np.float16)
    return Examples(vectors, np.arange(0, len(vectors) + 1, each))


def build_example_index(encoder: UtteranceEncoder, flat: FlatIndex) -> IvfIndex:
    """Return an approximate index of examples, built as by the service."""
    candidates = [Candidate.of(text) for text in replies()]
    tuned = [context[0] for context in draw_contexts(candidates)]
    return build_ivf(flat, encode_said(encoder, tuned), widening=EXAMPLES_WIDENING)


def encode_said(encoder: UtteranceEncoder, said: Sequence[str]) -> Float32:
    """Return the places (n, d) of utterances in the space of examples."""
    return encoder.as_examples(encoder.encode(said, Role.SAID))


if __name__ == "__main__":
    main()
