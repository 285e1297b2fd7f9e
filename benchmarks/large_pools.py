"""Measures pools of a million candidates and more: memory, build time, recall, latency and edits.

    OMP_NUM_THREADS=1 python -m benchmarks.large_pools [--sizes N ...] [--keep FOLDER] [--out FILE]

The vectors (float16) are in a file that is mapped into memory. The first run writes the vectors and
the index; later runs only measure. Half of the queries (`pools.py`) choose the number of lists, and
half measure. Pools of up to `--edits-up-to` candidates are also edited: one thread upserts and
removes ten candidates at a time while another searches, first alone, then while a fold builds a new
index.
"""

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Thread

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.pools import mixed, plain_encoder, queries_like, replies
from benchmarks.record import Rows, arguments, percentile, run, taken
from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import Role
from turnwise.service.pools import Candidate
from turnwise.service.pools.memory.contents import Contents, Edit, Segment
from turnwise.service.pools.memory.flat import FlatIndex, Index, one_thread
from turnwise.service.pools.memory.ivf import IvfIndex, build_ivf, recall_at_10

Float16 = NDArray[np.float16]

QUERIES = 128
AT_ONCE = 32
EDIT = 10


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--keep", type=Path, default="runs/large", help="folder of the vectors")
    parser.add_argument("--edits-up-to", type=int, default=1_000_000)
    run(parser, {"sizes": [20_000], "keep": Path("runs/large-toy")}, measure)


def measure(options: argparse.Namespace) -> Rows:
    options.keep.mkdir(parents=True, exist_ok=True)
    one_thread()
    encoder, rows = plain_encoder(), Rows()
    chosen_by, measured_by = np.split(queries_like(encoder, QUERIES), 2)
    for size in options.sizes:
        vectors = kept_vectors(options.keep / f"{size}.npy", size, encoder)
        flat = FlatIndex(vectors)
        ivf = kept_index(options.keep / f"{size}.ivf", flat, chosen_by)
        exact = [flat.search(query, 10)[1] for query in measured_by]
        few = measured_by[:8] if size > 2_000_000 else measured_by
        rows.add(**searches("exact", flat, few, exact))
        probes = ivf.probes
        for ivf.probes in (probes // 2, probes * 2, probes):
            name = f"{ivf.probes} of {ivf.lists} lists, {ivf.short_list} scored exactly"
            rows.add(**searches(name, ivf, measured_by, exact))
        rows[-1]["build_cpu_seconds"] = built_in(options.keep / f"{size}.ivf")
        if size <= options.edits_up_to:
            measure_edits(ivf, measured_by, chosen_by, rows)
    return rows


def kept_vectors(path: Path, size: int, encoder: UtteranceEncoder) -> Float16:
    """Return unit vectors (size, d), mapped from a file; write the file if it does not exist."""
    if not path.exists():
        made, done = path.with_suffix(".part"), 0
        shape = size, encoder.dimension
        out = np.lib.format.open_memmap(made, "w+", np.float16, shape)
        for _, block in mixed(encoder.encode(replies(), Role.AFTER), size):
            out[done : done + len(block)] = block
            done += len(block)
        out.flush()
        made.rename(path)
    vectors: Float16 = np.load(path, mmap_mode="r")
    return vectors


def kept_index(path: Path, flat: FlatIndex, queries: Float32) -> IvfIndex:
    """Return the index; build it only if it has no file yet."""
    about = path.with_suffix(".json")
    if not about.exists():
        begin = time.process_time()
        ivf = build_ivf(flat, queries)
        facts = {
            "cpu_seconds": time.process_time() - begin,
            "probes": ivf.probes,
            "short_list": ivf.short_list,
        }
        faiss.write_index(ivf.codes, str(path))
        about.write_text(json.dumps(facts), encoding="utf-8")
    facts = json.loads(about.read_text(encoding="utf-8"))
    codes = faiss.read_index(str(path))
    return IvfIndex(flat, codes, probes=facts["probes"], short_list=facts["short_list"])


def built_in(path: Path) -> float:
    """Return the CPU seconds that building an index took."""
    return float(json.loads(path.with_suffix(".json").read_text("utf-8"))["cpu_seconds"])


def searches(name: str, index: Index, queries: Float32, exact: list[Float32]) -> dict[str, object]:
    """Return a row: recall, and the times of single queries and of many at once."""
    index.search(queries[0], 10)
    took = [1e3 * taken(partial(index.search, query, 10)) for query in queries]
    with ThreadPoolExecutor(1, initializer=one_thread) as searching:

        def all_at_once() -> None:
            asked = (queries[n % len(queries)] for n in range(AT_ONCE))
            for future in [searching.submit(index.search, query, 10) for query in asked]:
                future.result()

        last = 1e3 * taken(all_at_once)
    return {
        "candidates": len(index),
        "search": name,
        "bytes_a_vector": index.bytes / len(index),
        "recall_at_10": recall_at_10(index, queries, exact[: len(queries)]),
        "p50_ms": percentile(took, 0.5),
        "p95_ms": percentile(took, 0.95),
        f"each_of_{AT_ONCE}_at_once_ms": last / AT_ONCE,
    }


def measure_edits(ivf: IvfIndex, queries: Float32, chosen_by: Float32, rows: Rows) -> None:
    """Search during edits, then also during a fold; check that every answer is right."""
    editing = Editing(ivf)
    searched(editing, queries, "no edits", lambda: time.sleep(0.02), rows)
    searched(editing, queries, "edits", editing.edit, rows)
    folded = Event()

    def fold() -> None:
        one_thread()
        editing.fold(chosen_by)
        folded.set()

    folding = Thread(target=fold)
    folding.start()
    searched(editing, queries, "edits and a fold", editing.edit, rows, folded)
    folding.join()
    searched(editing, queries, "edits, after the fold", editing.edit, rows)


class Editing:
    """Contents under edits; knows the ids that a search must find, and those that it must not."""

    def __init__(self, ivf: IvfIndex) -> None:
        candidates = tuple(Candidate(str(place), "") for place in range(len(ivf)))
        nothing = Contents.empty(ivf.dimension)
        self.contents = Contents(Segment(candidates, ivf), nothing.overlay)
        self._rng = np.random.default_rng(2)
        self._since: list[Edit] = []
        self.newest = 0
        self.gone = set[str]()

    def edit(self) -> None:
        """Remove some candidates and add others; keep the last one, which a search must find."""
        gone = set(map(str, self._rng.integers(len(self.contents), size=EDIT))) - self.gone
        vectors = self._rng.standard_normal((EDIT, self.contents.base.index.dimension))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        added = [Candidate(f"new {self.newest + n}", "") for n in range(EDIT)]
        edit = Edit(added, vectors.astype(np.float16), list(gone))
        self._since.append(edit)
        self.contents = self.contents.after([edit], FlatIndex)
        self.newest += EDIT
        self.gone |= gone
        self.last = added[-1].id, vectors[-1].astype(np.float32)

    def fold(self, queries: Float32) -> None:
        self._since = []
        built = self.contents.merged(lambda vectors: build_ivf(FlatIndex(vectors), queries))
        self.contents = built.after(self._since, FlatIndex) if self._since else built


def searched(  # noqa: PLR0917
    editing: Editing,
    queries: Float32,
    name: str,
    work: Callable[[], None],
    rows: Rows,
    until: Event | None = None,
) -> None:
    """Search while another thread works, until an event or until there are enough figures."""
    over, took, edits = Event(), list[float](), list[float]()

    def edit() -> None:
        one_thread()
        while not over.wait(0.02):
            edits.append(taken(work))

    thread = Thread(target=edit)
    thread.start()
    while not until.is_set() if until else len(took) < 8 * len(queries):
        query = queries[len(took) % len(queries)]
        gone, contents = set(editing.gone), editing.contents
        begin = time.perf_counter()
        hits = contents.search(query, 10)
        took.append(1e3 * (time.perf_counter() - begin))
        if wrong := gone & {hit.candidate.id for hit in hits}:
            raise SystemExit(f"{wrong} were removed, but a search found them")
        time.sleep(0.005)
    over.set()
    thread.join()
    if editing.newest:
        id, vector = editing.last  # noqa: A001 - what it is
        if editing.contents.search(vector, 1)[0].candidate.id != id:
            raise SystemExit(f"{id} was added, but a search did not find it")
    rows.add(
        candidates=len(editing.contents),
        search=name,
        p50_ms=percentile(took, 0.5),
        p95_ms=percentile(took, 0.95),
        most_ms=max(took),
        edits=len(edits) if editing.newest else 0,
        edit_ms=1e3 * percentile(edits, 0.5) if editing.newest else None,
    )


if __name__ == "__main__":
    main()
