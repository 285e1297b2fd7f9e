"""Measures what a pool in memory takes for each candidate, and how long a search takes.

    python -m research.pool_memory [--sizes 100000 1000000]

A row has the bytes of memory for each candidate, and those of the file of vectors, which the kernel
caches. The vectors are mixtures of those of the example replies, with noise, and the queries
are running queries. The processor time is that of a search for the 10 or 100 best, in the median.
"""

import gc
import re
from pathlib import Path
from statistics import median
from time import thread_time

import numpy as np

from benchmarks.pools import mixed, plain_encoder, queries_like, replies
from benchmarks.record import Rows, arguments, run
from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import Role
from turnwise.service.pools import Candidate
from turnwise.service.pools.memory.contents import Contents
from turnwise.service.pools.memory.flat import FlatIndex, one_thread
from turnwise.service.pools.memory.ivf import build_ivf
from turnwise.service.pools.memory.packed import pack
from turnwise.service.pools.memory.segment import Lookups, Segment
from turnwise.service.pools.memory.vectors import empty_vectors


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    run(parser, {"sizes": [1000]}, lambda given: measure(given.sizes))


def measure(sizes: list[int]) -> Rows:
    one_thread()
    rows = Rows()
    encoder = plain_encoder()
    for size in sizes:
        _measure_size(encoder, size, rows)
    return rows


def _measure_size(encoder: UtteranceEncoder, size: int, rows: Rows) -> None:
    texts = replies()
    queries = queries_like(encoder, 256)
    seeds = encoder.encode(texts, Role.AFTER)
    before = _read_memory()
    made = (Candidate.of(f"{texts[n % len(texts)]} ({n})", str(n)) for n in range(size))
    candidates = pack(made)
    vectors = empty_vectors(size, encoder.dimension)
    start = 0
    for _, block in mixed(seeds, size):
        vectors[start : start + len(block)] = block
        start += len(block)
    index = build_ivf(FlatIndex(vectors), queries[:128])
    base = Segment(candidates, Lookups.of(candidates), index)
    contents = Contents(base, Contents.empty(encoder.dimension).overlay)
    in_memory, in_file = np.subtract(_read_memory(), before) / size
    rows.add(
        candidates=size,
        in_memory=in_memory,
        in_file=in_file,
        recall=index.recall,
        **{f"cpu_ms_of_{k}": _time_searches(contents, queries[128:], k) for k in (10, 100)},
    )


def _read_memory() -> list[int]:
    """Return the bytes of this process that are in no file, and those of files."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = dict(re.findall(r"^(RssAnon|RssFile):\s+(\d+)", status, re.M))
    return [1024 * int(found["RssAnon"]), 1024 * int(found["RssFile"])]


def _time_searches(contents: Contents, queries: Float32, k: int) -> float:
    """Return the median processor time of a search, in milliseconds."""
    times = []
    for query in queries:
        begin = thread_time()
        contents.search(query, k)
        times.append(1000 * (thread_time() - begin))
    return median(times)


if __name__ == "__main__":
    main()
