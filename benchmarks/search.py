"""Measures the time and recall of searches, by the size of the pool and by the index.

    OMP_NUM_THREADS=1 python -m benchmarks.search [--vectors V.npy --queries Q.npy] [--out FILE]

It searches with one query at a time, as turns do. Random unit vectors are the hardest case for an
approximate index. Clustered vectors resemble the replies of a service. The queries are running
queries of contexts, which are not among the vectors. `--vectors` (n, d) and `--queries` (m, d) take
real ones. For a million candidates or more, use `large_pools.py`.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.record import Rows, arguments, percentile, run, taken
from turnwise.models.arrays import Float32
from turnwise.models.scores import rows, running_query
from turnwise.service.pools.memory.flat import FlatIndex, one_thread
from turnwise.service.pools.memory.ivf import build_ivf, recall_at_10

DIMENSION = 384
QUERIES = 64
BATCH = 32


@dataclass(frozen=True, slots=True)
class Data:
    name: str
    vectors: Float32
    queries: Float32


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--vectors", type=Path, help="(n, d) vectors to search, .npy")
    parser.add_argument("--queries", type=Path, help="(m, d) running queries for them, .npy")
    run(parser, {"sizes": [1000]}, measure)


def measure(options: argparse.Namespace) -> Rows:
    one_thread()
    rows = Rows()
    given = [real(options.vectors, options.queries)] if options.vectors else made(options.sizes)
    for data in given:
        measure_data(data, rows)
    return rows


def real(vectors: Path, queries: Path | None) -> Data:
    searched = np.load(vectors).astype(np.float32)
    asked = np.load(queries) if queries else contexts(searched)
    return Data(vectors.name, searched, asked[:QUERIES].astype(np.float32))


def made(sizes: list[int]) -> Iterator[Data]:
    generator = np.random.default_rng(0)
    for size in sizes:
        random = unit(generator.standard_normal((size, DIMENSION), dtype=np.float32))
        yield Data("random", random, contexts(random))
        centres = unit(generator.standard_normal((max(50, size // 100), DIMENSION)))
        random += 1.2 * centres[generator.integers(len(centres), size=size)]
        clustered = unit(random)
        yield Data("clustered", clustered, contexts(clustered))


def unit(vectors: NDArray[np.floating]) -> Float32:
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32, copy=False)


def contexts(vectors: Float32) -> Float32:
    """Return running queries of contexts of four utterances, which lie near some of the vectors."""
    generator = np.random.default_rng(1)
    drawn = vectors[generator.integers(len(vectors), size=QUERIES * 4)]
    said = unit(drawn + 0.04 * generator.standard_normal(drawn.shape))
    return np.stack([running_query(rows(c, c)) for c in np.split(said, QUERIES)])


def measure_data(data: Data, rows: Rows) -> None:
    n, d = data.vectors.shape
    half = data.vectors.astype(np.float16)
    flat = FlatIndex(half)
    exact = [flat.search(query, 10)[1] for query in data.queries]
    plain = faiss.IndexFlatIP(d)
    plain.add(data.vectors)
    base = times(lambda q: plain.search(q[None], 10), data.queries)

    def line(name: str, took: Sequence[float], recall: float = 1.0) -> None:
        rows.add(
            candidates=n,
            vectors=data.name,
            search=name,
            p50_ms=percentile(took, 0.5),
            p95_ms=percentile(took, 0.95),
            times_float32=percentile(base, 0.5) / percentile(took, 0.5),
            recall_at_10=recall,
        )

    line("float32, one thread", base)
    line("float16 (FlatIndex), one thread", times(lambda q: flat.search(q, 10), data.queries))
    with ThreadPoolExecutor(1, initializer=one_thread) as executor:
        halves = FlatIndex(half, parts=2, executor=executor)
        line(
            "float16 (FlatIndex), two threads", times(lambda q: halves.search(q, 10), data.queries)
        )
        through = times(lambda q: executor.submit(flat.search, q, 10).result(), data.queries)
        line("float16 (FlatIndex), handed to a thread", through)
    default = faiss.cvar.distance_compute_blas_threshold
    for threshold in (default, 1):
        faiss.cvar.distance_compute_blas_threshold = threshold
        batch = [time / BATCH for time in batched(plain, data.queries[:BATCH])]
        line(f"float32, {BATCH} queries at once, BLAS threshold {threshold}: each", batch)
    faiss.cvar.distance_compute_blas_threshold = default
    if n >= 10_000:
        add_ivf(line, flat, data, exact)


def add_ivf(
    line: Callable[[str, list[float], float], None],
    flat: FlatIndex,
    data: Data,
    exact: list[Float32],
) -> None:
    ivf = build_ivf(flat, contexts(data.vectors))
    chosen = ivf.probes
    for probes in sorted({chosen // 4, chosen // 2, chosen} - {0, 1}):
        ivf.probes = probes
        name = f"IvfIndex, {probes} of {ivf.lists} lists, {ivf.short_list} scored exactly"
        if probes == chosen:
            name += " (chosen)"
        line(
            name,
            times(lambda q: ivf.search(q, 10), data.queries),
            recall_at_10(ivf, data.queries, exact),
        )


def times(search: Callable[[Float32], object], queries: Float32) -> list[float]:
    """Return milliseconds of each query, after a warm-up."""
    search(queries[0])
    return [1000 * taken(partial(search, query)) for query in queries]


def batched(index: faiss.IndexFlatIP, queries: Float32) -> list[float]:
    index.search(queries, 10)
    return [1000 * taken(lambda: index.search(queries, 10)) for _ in range(5)]


if __name__ == "__main__":
    main()
