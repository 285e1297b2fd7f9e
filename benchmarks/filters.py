"""Measures searches with a filter, by the share of candidates that match and by the index.

    OMP_NUM_THREADS=1 python -m benchmarks.filters [--size 100000] [--out FILE]

Unfiltered and filtered searches of the same queries alternate. `cold_ms` is what the first search
with a filter takes more, to evaluate it for every candidate; the pool keeps the result. Recall is
the share of the exact top ten of the matching candidates.
"""

import argparse
from time import perf_counter

import numpy as np

from benchmarks.pools import plain_encoder, pool_like, queries_like, replies
from benchmarks.record import Rows, arguments, percentile, run
from turnwise.models.arrays import Float32
from turnwise.models.roles import Role
from turnwise.service.pools import Candidate, Filter
from turnwise.service.pools.memory.contents import Contents, Segment
from turnwise.service.pools.memory.flat import FlatIndex, one_thread
from turnwise.service.pools.memory.ivf import build_ivf

SHARES = (0.5, 0.1, 0.01, 0.001)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", type=int, default=100_000)
    run(parser, {"size": 2000}, measure)


def measure(options: argparse.Namespace) -> Rows:
    one_thread()
    encoder, size = plain_encoder(), options.size
    flat = FlatIndex(pool_like(encoder.encode(replies(), Role.AFTER), size).astype(np.float16))
    prices = np.random.default_rng(2).permutation(size) / size
    candidates = tuple(
        Candidate(str(place), "A reply.", {"topic": "hotel", "price": {"net": float(price)}})
        for place, price in enumerate(prices)
    )
    queries = queries_like(encoder)
    rows = Rows()
    for index in (flat, build_ivf(flat, queries_like(encoder))):
        contents = Contents(Segment(candidates, index), Contents.empty(encoder.dimension).overlay)
        for share in SHARES:
            measure_share(contents, queries, share, rows)
    return rows


def measure_share(contents: Contents, queries: Float32, share: float, rows: Rows) -> None:
    where = Filter.checked({"topic": "hotel", "price.net": {"lt": share}})
    begin = perf_counter()
    matching = contents.base.matching(where)
    cold = perf_counter() - begin
    places = np.flatnonzero(np.unpackbits(matching, count=len(contents), bitorder="little"))
    index = contents.base.index
    times: dict[Filter | None, list[float]] = {None: [], where: []}
    found = []
    for query in queries:
        for filtered, took in times.items():
            begin = perf_counter()
            hits = contents.search(query, 10, filtered)
            took.append(perf_counter() - begin)
        best = np.sort(index.vectors[places].astype(np.float32) @ query)[::-1][: len(hits)]
        found.append(np.mean([hit.score >= best[-1] - 1e-4 for hit in hits]))
    plain, warm = (1000 * percentile(took, 0.5) for took in times.values())
    rows.add(
        candidates=len(contents),
        index=index.kind,
        share=share,
        unfiltered_p50_ms=plain,
        cold_ms=1000 * cold,
        warm_p50_ms=warm,
        times_unfiltered=warm / plain,
        recall_at_10=float(np.mean(found)),
    )


if __name__ == "__main__":
    main()
