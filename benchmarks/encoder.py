"""Ways to encode on this machine: time of one text and of batches, and whether rankings agree.

    python benchmarks/encoder.py [--texts FILE] [--model NAME] [--threads N] [--cache FOLDER]

Every way takes its turn in each round, so that the ratios hold on a busy machine too; times are
the median over rounds, and the least. `queue` is what the service does: the encoder's queue, in an
event loop, in front of ONNX Runtime (on a CPU). Agreement: each text as the last utterance of a
context ranks all the texts as candidates, against torch float32. FILE holds a text a line.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sayings import sayings

from turnwise.models import DEFAULT_MODEL
from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder, batches
from turnwise.models.onnx import usable_cores
from turnwise.models.roles import Relation, Role, RoleText
from turnwise.service.encoder.queue import EncoderQueue, Priority
from turnwise.service.observe.metrics import Metrics

Way = Callable[[list[RoleText]], Awaitable[Float32]]

EXACT = "torch float32"
ROUNDS = 5
LENGTHS = (10, 20, 40)
BATCHES = (4, 10, 64)
REST = 0.02
"""Seconds between two ways: idle threads of torch spin for a while."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default=str(DEFAULT_MODEL))
    parser.add_argument("--texts", type=Path, help="a text a line; made up where left out")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--cache", type=Path, help="folder of the exported model, to keep it")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        cache = options.cache or Path(folder)
        served = UtteranceEncoder.for_serving(options.model, cache=cache, threads=options.threads)
    asyncio.run(compare(options, served))


async def compare(options: argparse.Namespace, served: UtteranceEncoder) -> None:
    queue = EncoderQueue(served, Metrics(), limit=10_000, batch_tokens=4096)
    await queue.start()
    await report(options, served, ways(served, options.model, queue))
    await queue.drain(5.0)


def ways(served: UtteranceEncoder, model: str, queue: EncoderQueue) -> dict[str, Way]:
    """From a name to what encodes a batch of texts."""
    exact = UtteranceEncoder(model, device=str(served.model.device))
    half = UtteranceEncoder(exact.model, precision="bfloat16")

    async def sentence_transformers(items: list[RoleText]) -> Float32:
        texts = [exact.prefixed(item) for item in items]
        vectors = exact.model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, np.float32)

    return {
        "sentence-transformers": sentence_transformers,
        EXACT: direct(exact),
        "torch bfloat16": direct(half),
        served.runtime.partition(" on ")[0]: direct(served),
        "queue": queue.encode,
        "queue, as an upload": lambda items: queue.encode(items, Priority.BULK),
    }


def direct(encoder: UtteranceEncoder) -> Way:
    async def encode(items: list[RoleText]) -> Float32:
        return encoder.forward(encoder.tokenize(items))

    return encode


async def report(
    options: argparse.Namespace, served: UtteranceEncoder, every: dict[str, Way]
) -> None:
    console = Console(width=120)
    console.print(f"{served.name}, {options.threads} threads; the service: {served.runtime}")
    table = Table("ms, median (least)", *every)
    for length in LENGTHS:
        items = of_length(served, length)
        table.add_row(f"1 text, {length} word pieces", *cells(await timed(every, items)))
    for size in BATCHES:
        items = of_length(served, 26) * size
        table.add_row(f"{size} texts, 26 word pieces", *cells(await timed(every, items)))
    console.print(table)
    texts = list(islice(sayings(), 300))
    if options.texts:
        texts = list(dict.fromkeys(options.texts.read_text(encoding="utf-8").splitlines()))
    console.print(await agreement(every, texts, served))


def of_length(encoder: UtteranceEncoder, length: int) -> list[RoleText]:
    """One utterance that is so many word pieces long, prefix and special tokens included."""
    words = " ".join(islice(sayings(), 9)).split()
    cut = [RoleText(" ".join(words[:n]), Role.SECOND, Relation.OTHER) for n in range(1, len(words))]
    return [max(cut, key=lambda item: -abs(len(encoder.tokenize([item])[0]) - length))]


async def timed(every: dict[str, Way], items: list[RoleText]) -> dict[str, list[float]]:
    """Milliseconds of each call of each way, in rounds."""
    times: dict[str, list[float]] = {name: [] for name in every}
    for _ in range(ROUNDS):
        for name, way in every.items():
            await asyncio.sleep(REST)
            await way(items)  # what came before has left the caches cold
            for _ in range(max(1, 10 // len(items))):
                begin = time.perf_counter()
                await way(items)
                times[name].append((time.perf_counter() - begin) * 1e3)
    return times


def cells(times: dict[str, list[float]]) -> list[str]:
    return [f"{median(of_one):.2f} ({min(of_one):.2f})" for of_one in times.values()]


async def agreement(every: dict[str, Way], texts: list[str], encoder: UtteranceEncoder) -> Table:
    """Share of queries with the same best candidate, and overlap of the ten best."""
    table = Table(f"against {EXACT}, {len(texts):,} texts", "same top 1", "top 10", "max diff")
    wanted = await vectors(every[EXACT], texts, encoder)
    best = top_10(*wanted)
    for name, way in every.items():
        got = await vectors(way, texts, encoder)
        found = top_10(*got)
        first = float((found[:, 0] == best[:, 0]).mean())
        pairs = zip(found, best, strict=True)
        overlap = float(np.mean([len(set(a) & set(b)) for a, b in pairs])) / best.shape[1]
        worst = max(float(np.abs(a - b).max()) for a, b in zip(got, wanted, strict=True))
        table.add_row(name, f"{first:.4f}", f"{overlap:.4f}", f"{worst:.1e}")
    return table


async def vectors(way: Way, texts: list[str], encoder: UtteranceEncoder) -> tuple[Float32, Float32]:
    """Of every text as a candidate and as an utterance of the other speaker."""
    return (
        await encoded(way, [RoleText(text, Role.AFTER) for text in texts], encoder),
        await encoded(
            way, [RoleText(text, Role.SECOND, Relation.OTHER) for text in texts], encoder
        ),
    )


async def encoded(way: Way, items: list[RoleText], encoder: UtteranceEncoder) -> Float32:
    found = np.empty((len(items), encoder.dimension), np.float32)
    for places in batches([len(ids) for ids in encoder.tokenize(items)], 1024):
        found[places] = await way([items[place] for place in places])
    return found


def top_10(candidates: Float32, queries: Float32) -> NDArray[np.intp]:
    return np.argsort(-(queries @ candidates.T), axis=1, kind="stable")[:, :10]


if __name__ == "__main__":
    main()
