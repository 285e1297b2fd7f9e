"""Measures encoding a catalogue, and importing one with random vectors, as the commands do.

Candidates a second count from the first 256 candidates on. The seconds of an import are those of
the command: it reads the model, and the pool is in Redis or in the store at the end.
"""

import argparse
import asyncio
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.pools import SEEDS, mixed, plain_encoder, replies, sayings
from benchmarks.record import Rows, arguments, run
from turnwise.models.data import write_jsonl
from turnwise.models.roles import Role
from turnwise.service.app.components import components_of
from turnwise.service.cli.pool.bulk import encode_catalogue, import_parts
from turnwise.service.pools.files.catalogue import Catalogue
from turnwise.service.pools.files.parts import EncodedBy, PartsFolder, PartsManifest
from turnwise.service.redis.private import running_or_started
from turnwise.service.settings import Settings


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--encoded", type=int, default=5000, help="candidates to encode")
    parser.add_argument("--imported", type=int, default=100_000, help="candidates to import")
    parser.add_argument("--store", help="a store of TURNWISE_STORE_URL; by default local")
    run(parser, {"encoded": 600, "imported": 200}, lambda given: asyncio.run(measure(given)))


async def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    with TemporaryDirectory() as name:
        folder = Path(name)
        times: list[tuple[float, int]] = []
        file, out = written(folder / "encoded.jsonl", options.encoded), folder / "encoded"
        note = lambda done, _: times.append((time.perf_counter(), done))  # noqa: E731
        await encode_catalogue(Settings(), [file], str(out), note)
        (begin, first), (end, last) = times[0], times[-1]
        size = sum(file.stat().st_size for file in out.iterdir())
        rows.add(
            part="encode",
            candidates=last,
            a_second=(last - first) / (end - begin),
            bytes_a_candidate=size / last,
        )
        made = make(written(folder / "imported.jsonl", options.imported), folder / "imported")
        async with running_or_started(folder / "redis") as url:
            settings = Settings().model_copy(update={"redis_url": url})
            begin = time.perf_counter()
            await import_parts(settings, "n", "p", made, lambda *_: None, store=options.store)
            seconds = time.perf_counter() - begin
            rows.add(part="import", candidates=options.imported, seconds=seconds)
            async with components_of(settings) as components:  # a store outlives the folder
                await components.pools.drop("n", "p")
    return rows


def written(path: Path, size: int) -> str:
    """Write a catalogue of utterances."""
    write_jsonl(path, ({"text": text} for text in islice(sayings(next(SEEDS)), size)))
    return str(path)


def make(file: str, folder: Path) -> str:
    """Write the parts of a catalogue with vectors that are made up."""
    encoder, catalogue, parts = plain_encoder(), Catalogue.read([file]), PartsFolder(str(folder))
    manifest = PartsManifest.of(catalogue, EncodedBy.of(encoder))
    parts.begin(manifest)
    seeds = encoder.encode(replies(), Role.AFTER)
    todo = {part.start: part for part in manifest.parts}
    for start, some in catalogue.parts(todo):
        vectors = np.concatenate([block for _, block in mixed(seeds, len(some))])
        parts.write(manifest.encoded_by, todo[start], some, vectors.astype(np.float16))
    return str(folder)


if __name__ == "__main__":
    main()
