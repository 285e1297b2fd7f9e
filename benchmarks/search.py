"""Time and recall of searching a pool, by its size and by how it is searched.

    OMP_NUM_THREADS=1 python benchmarks/search.py [--vectors V.npy --queries Q.npy]

One query at a time, as turns come. Random unit vectors are the hardest case for an approximate
index; clustered ones are like the replies of a service, and so are the queries: sums of rows of
contexts, which lie off the data. `--vectors` (n, d) and `--queries` (m, d) take real ones. From a
million on: `large_pools.py`.
"""

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import faiss
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from turnwise.models.arrays import Float32
from turnwise.models.scores import rows, running_query
from turnwise.service.pools.index import FlatIndex, one_thread
from turnwise.service.pools.ivf import build_ivf, recall_at_10

DIMENSION = 384
SIZES = [1000, 10_000, 100_000]
QUERIES = 64
BATCH = 32


@dataclass(frozen=True, slots=True)
class Data:
    name: str
    vectors: Float32
    queries: Float32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--vectors", type=Path, help="(n, d) vectors to search, .npy")
    parser.add_argument("--queries", type=Path, help="(m, d) running queries for them, .npy")
    options = parser.parse_args()
    one_thread()
    console = Console(width=110)
    console.print(f"FAISS {faiss.__version__} ({faiss.get_compile_options().strip()})")
    data = iter([real(options.vectors, options.queries)]) if options.vectors else made(SIZES)
    for each in data:
        console.print(measured(each))


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


def measured(data: Data) -> Table:
    n, d = data.vectors.shape
    table = Table("search", "ms", "p95", "x float32", "recall@10", title=f"{n:,} {data.name}")
    half = data.vectors.astype(np.float16)
    flat = FlatIndex(half)
    exact = [flat.search(query, 10)[1] for query in data.queries]
    plain = faiss.IndexFlatIP(d)
    plain.add(data.vectors)
    base = times(lambda q: plain.search(q[None], 10), data.queries)

    def line(name: str, taken: list[float], recall: float = 1.0) -> None:
        median, late = np.median(taken), np.quantile(taken, 0.95)
        ratio = np.median(base) / median
        table.add_row(name, f"{median:.3f}", f"{late:.3f}", f"{ratio:.1f}", f"{recall:.4f}")

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
    return table


def add_ivf(
    line: Callable[[str, list[float], float], None],
    flat: FlatIndex,
    data: Data,
    exact: list[Float32],
) -> None:
    begin = perf_counter()
    ivf = build_ivf(flat, contexts(data.vectors))
    seconds = perf_counter() - begin
    chosen = ivf.probes
    for probes in sorted({chosen // 4, chosen // 2, chosen} - {0, 1}):
        ivf.probes = probes
        name = f"IvfIndex, {probes} of {ivf.lists} lists, {ivf.short_list} scored exactly"
        if probes == chosen:
            name += f" (chosen; built in {seconds:.0f} s)"
        taken = times(lambda q: ivf.search(q, 10), data.queries)
        line(name, taken, recall_at_10(ivf, data.queries, exact))


def times(search: Callable[[Float32], object], queries: Float32) -> list[float]:
    """Return milliseconds of each query, after a warm-up."""
    search(queries[0])
    taken = []
    for query in queries:
        begin = perf_counter()
        search(query)
        taken.append(1000 * (perf_counter() - begin))
    return taken


def batched(index: faiss.IndexFlatIP, queries: Float32) -> list[float]:
    index.search(queries, 10)
    taken = []
    for _ in range(5):
        begin = perf_counter()
        index.search(queries, 10)
        taken.append(1000 * (perf_counter() - begin))
    return taken


if __name__ == "__main__":
    main()
