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
from itertools import islice

import numpy as np

from benchmarks.pools import REPLIES, SEEDS, plain_encoder, pool_like, replies, sayings
from turnwise.models.roles import Relation, Role
from turnwise.service.pools.encoding import draw_contexts
from turnwise.service.pools.memory.examples import ExampleIndex, Examples
from turnwise.service.pools.memory.flat import FlatIndex
from turnwise.service.pools.memory.ivf import build_ivf
from turnwise.service.pools.memory.upkeep import EXAMPLES_WIDENING

QUERIES = 500
TOP = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=100_000, help="number of candidates")
    parser.add_argument("--examples", type=int, default=3, help="examples of each candidate")
    options = parser.parse_args()

    encoder = plain_encoder()
    lines = map(json.loads, REPLIES.read_text(encoding="utf-8").splitlines())
    known = [example for line in lines for example in line.get("examples", ())]
    seeds = encoder.as_examples(encoder.encode(known, Role.SECOND, Relation.OTHER))
    vectors = pool_like(seeds, options.size * options.examples).astype(np.float16)
    examples = Examples(vectors, np.arange(0, len(vectors) + 1, options.examples))

    flat = FlatIndex(vectors)
    tuned = [context[0] for context in draw_contexts(replies())]
    queries = encoder.as_examples(encoder.encode(tuned, Role.SECOND, Relation.OTHER))
    index = build_ivf(flat, queries, widening=EXAMPLES_WIDENING)

    sayings_of_one = [*islice(sayings(next(SEEDS)), QUERIES)]
    asked = encoder.as_examples(encoder.encode(sayings_of_one, Role.SECOND, Relation.OTHER))
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


if __name__ == "__main__":
    main()
