"""A million candidates and more: memory, time to build, recall, latency, and edits meanwhile.

    OMP_NUM_THREADS=1 python benchmarks/large_pools.py [--sizes 1000000 10000000] --keep FOLDER

Vectors (float16) lie in a file that is mapped into memory, and are made where it is not there, as
is the index: the second run only measures. Candidates are made out of example replies', queries
are running queries (`pools.py`): half of them choose how many lists are searched, half measure.
Bytes a vector count the vectors, their codes and what Python keeps of a candidate. Edits, up to
`--edits-up-to`: one thread upserts and removes ten candidates each time while another searches;
then the whole is folded into a new index beside that.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import faiss
import numpy as np
from numpy.typing import NDArray
from pools import mixed, queries_like, replies
from rich.console import Console
from rich.progress import Progress

from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.roles import Role
from turnwise.service.pools import Candidate
from turnwise.service.pools.contents import Contents, Edit, Segment
from turnwise.service.pools.index import FlatIndex, Index, one_thread
from turnwise.service.pools.ivf import IvfIndex, build_ivf, recall_at_10

Float16 = NDArray[np.float16]

QUERIES = 128
AT_ONCE = 32
EDIT = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--keep", type=Path, required=True, help="folder of vectors and indexes")
    parser.add_argument("--edits-up-to", type=int, default=1_000_000)
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    one_thread()
    encoder = UtteranceEncoder(device="cpu")
    chosen_by, measured_by = np.split(queries_like(encoder, QUERIES), 2)
    for size in options.sizes:
        vectors = kept_vectors(options.keep / f"{size}.npy", size, encoder)
        flat = FlatIndex(vectors)
        ivf = kept_index(options.keep / f"{size}.ivf", flat, chosen_by)
        exact = [flat.search(query, 10)[1] for query in measured_by]
        print(
            f"\n{size:,} candidates: {ivf.bytes / size:.0f} bytes each, {ivf.lists} lists, "
            f"{ivf.probes} searched, {ivf.short_list} scored exactly"
        )
        print(
            f"{'':24} {'recall@10':>9} {'ms':>8} {'p95':>8} {f'{AT_ONCE} at once: each':>18} last"
        )
        few = measured_by[:8] if size > 2_000_000 else measured_by
        say("exact", flat, few, exact)
        say("approximate", ivf, measured_by, exact)
        probes = ivf.probes
        for ivf.probes in (probes // 2, probes * 2):
            say(f"  {ivf.probes} lists", ivf, measured_by, exact)
        ivf.probes = probes
        if size <= options.edits_up_to:
            measure_edits(ivf, measured_by, chosen_by)


def kept_vectors(path: Path, size: int, encoder: UtteranceEncoder) -> Float16:
    """Return unit vectors (size, d), mapped from a file."""
    if not path.exists():
        made, done = path.with_suffix(".part"), 0
        shape = size, encoder.dimension
        out = np.lib.format.open_memmap(made, "w+", np.float16, shape)
        with bar(f"{size:,} vectors") as advance:
            for _, block in mixed(encoder.encode(replies(), Role.AFTER), size):
                out[done : done + len(block)] = block
                done += len(block)
                advance(done / size)
        out.flush()
        made.rename(path)
    vectors: Float16 = np.load(path, mmap_mode="r")
    return vectors


def kept_index(path: Path, flat: FlatIndex, queries: Float32) -> IvfIndex:
    """Return an index, from a file where it was built before."""
    about = path.with_suffix(".json")
    if not about.exists():
        begin = time.process_time()
        with bar(f"{len(flat):,} under an index") as advance:
            ivf = build_ivf(flat, queries, progress=advance)
        facts = {
            "cpu_seconds": time.process_time() - begin,
            "probes": ivf.probes,
            "short_list": ivf.short_list,
        }
        faiss.write_index(ivf.codes, str(path))
        about.write_text(json.dumps(facts), encoding="utf-8")
    facts = json.loads(about.read_text(encoding="utf-8"))
    print(f"built in {facts['cpu_seconds']:.0f} s of one core")
    codes = faiss.read_index(str(path))
    return IvfIndex(flat, codes, probes=facts["probes"], short_list=facts["short_list"])


@contextmanager
def bar(what: str) -> Iterator[Callable[[float], None]]:
    with Progress(console=Console(width=80)) as progress:
        task = progress.add_task(what, total=1.0)
        yield lambda share: progress.update(task, completed=share)


def say(name: str, index: Index, queries: Float32, exact: list[Float32]) -> None:
    """Print one line: recall, one query at a time, many at once as the service takes them."""
    index.search(queries[0], 10)
    taken = [1e3 * timed(lambda q=query: index.search(q, 10)) for query in queries]
    with ThreadPoolExecutor(1, initializer=one_thread) as searching:
        begin = time.perf_counter()
        waiting = [
            searching.submit(index.search, queries[n % len(queries)], 10) for n in range(AT_ONCE)
        ]
        for future in waiting:
            future.result()
        last = 1e3 * (time.perf_counter() - begin)
    recall = recall_at_10(index, queries, exact[: len(queries)])
    print(
        f"{name:24} {recall:9.4f} {np.median(taken):8.2f} {np.quantile(taken, 0.95):8.2f} "
        f"{last / AT_ONCE:18.2f} {last:4.0f}",
        flush=True,
    )


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def measure_edits(ivf: IvfIndex, queries: Float32, chosen_by: Float32) -> None:
    """Search while edits land, then while the whole is folded too; see that all is right."""
    editing = Editing(ivf)
    print(f"{'':24} {'ms':>18} {'p95':>8} {'most':>8}   edits   ms each")
    searched(editing, queries, "no edits", lambda: time.sleep(0.02))
    searched(editing, queries, "edits", editing.edit)
    folded = Event()

    def fold() -> None:
        one_thread()
        editing.fold(chosen_by)
        folded.set()

    folding = Thread(target=fold)
    folding.start()
    searched(editing, queries, "edits and a fold", editing.edit, folded)
    folding.join()
    searched(editing, queries, "edits, after the fold", editing.edit)


class Editing:
    """Contents under edits, which keep count of what must be found and what must not."""

    def __init__(self, ivf: IvfIndex) -> None:
        candidates = tuple(Candidate(str(place), "") for place in range(len(ivf)))
        nothing = Contents.empty(ivf.dimension)
        self.contents = Contents(Segment(candidates, ivf), nothing.overlay)
        self._rng = np.random.default_rng(2)
        self._since: list[Edit] = []
        self.newest = 0
        self.gone = set[str]()

    def edit(self) -> None:
        """Remove some candidates and add as many, of which each is what some query asks for."""
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


def searched(
    editing: Editing,
    queries: Float32,
    name: str,
    work: Callable[[], None],
    until: Event | None = None,
) -> None:
    """Search until there is enough, or something is over, while another thread works."""
    over, took, edits = Event(), list[float](), list[float]()

    def edit() -> None:
        one_thread()
        while not over.wait(0.02):
            edits.append(timed(work))

    thread = Thread(target=edit)
    thread.start()
    while not until.is_set() if until else len(took) < 8 * len(queries):
        query = queries[len(took) % len(queries)]
        gone, contents = set(editing.gone), editing.contents
        begin = time.perf_counter()
        hits = contents.search(query, 10)
        took.append(1e3 * (time.perf_counter() - begin))
        if wrong := gone & {hit.candidate.id for hit in hits}:
            raise SystemExit(f"{wrong} were removed, and found")
        time.sleep(0.005)
    over.set()
    thread.join()
    if editing.newest:
        id, vector = editing.last  # noqa: A001 - what it is
        if editing.contents.search(vector, 1)[0].candidate.id != id:
            raise SystemExit(f"{id} was added, and not found")
    each = f"{1e3 * np.median(edits):9.1f}" if edits else ""
    print(
        f"{name:24} {np.median(took):18.2f} {np.quantile(took, 0.95):8.2f} {max(took):8.1f} "
        f"{len(edits) if editing.newest else 0:7} {each if editing.newest else ''}",
        flush=True,
    )


if __name__ == "__main__":
    main()
