"""Measures what examples cost a turn: processor time with examples, divided by the time without.

    python -m research.example_cost [--sizes 1000 100000] [--examples 3]

Two pools have the same candidates, and one of them has examples. Turns alternate between the pools.
A *cold* turn brings a new text. A *warm* one repeats it, so that its vector comes from a cache. The
vectors of the pools are mixtures of those of the example replies, with noise. The service runs in
this process, without HTTP, and Redis in another one.
"""

from collections import defaultdict
from itertools import islice
from statistics import median

import numpy as np
import uvloop

from benchmarks.pools import SEEDS, plain_encoder, pool_like, queries_like, replies, sayings
from benchmarks.record import Rows, arguments, run
from benchmarks.turn import Ours
from research.example_recall import build_example_index, make_examples
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import Role
from turnwise.service.pools import Candidate
from turnwise.service.pools.memory.examples import ExampleIndex
from turnwise.service.pools.memory.flat import FlatIndex, Index
from turnwise.service.pools.memory.ivf import build_ivf
from turnwise.service.pools.memory.segment import Lookups, Segment
from turnwise.service.settings import Settings

SAID_BEFORE = 4
"""Utterances of the context before a turn."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--examples", type=int, default=3, help="examples of each candidate")
    parser.add_argument("--turns", type=int, default=100, help="turns with each pool")
    toy = {"sizes": [200], "turns": 4}
    run(parser, toy, lambda given: uvloop.run(measure(given.sizes, given.examples, given.turns)))


async def measure(sizes: list[int], examples: int, turns: int) -> Rows:
    encoder = plain_encoder()
    found = Rows()
    async with Ours.running() as ours:
        for size in sizes:
            segments = [make_segment(encoder, size, each) for each in (0, examples)]
            said = sayings(next(SEEDS))
            await ours.begin(list(islice(said, SAID_BEFORE)))
            times = defaultdict[tuple[str, int], list[float]](list)
            for _ in range(turns):
                for number, segment in enumerate(segments):
                    ours.search_segment(segment)
                    text = next(said)
                    for kind in ("cold", "warm"):
                        turn = await ours.turn(text)
                        times[kind, number].append(1000 * turn.processor_seconds)
            for kind in ("cold", "warm"):
                plain, with_examples = (median(times[kind, number]) for number in (0, 1))
                found.add(
                    candidates=size,
                    turn=kind,
                    plain_ms=plain,
                    with_examples_ms=with_examples,
                    ratio=with_examples / plain,
                )
    return found


def make_segment(encoder: UtteranceEncoder, size: int, examples: int) -> Segment:
    """Return candidates with as many examples each, in indexes as the service builds them."""
    limit = Settings().exact_limit
    flat = FlatIndex(pool_like(encoder.encode(replies(), Role.AFTER), size).astype(np.float16))
    index: Index = flat if size <= limit else build_ivf(flat, queries_like(encoder))
    texts = tuple(map(str, range(examples)))
    candidates = tuple(Candidate(str(number), "", examples=texts) for number in range(size))
    lookups = Lookups.of(candidates)
    if not examples:
        return Segment(candidates, lookups, index)
    made = make_examples(encoder, size, examples)
    flat = FlatIndex(made.vectors)
    of_examples: Index = flat if len(made) <= limit else build_example_index(encoder, flat)
    return Segment(candidates, lookups, index, ExampleIndex(made, of_examples))


if __name__ == "__main__":
    main()
