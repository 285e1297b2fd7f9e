"""Compares ways to encode on this machine: the time of one text and of batches, and the rankings.

    python -m benchmarks.encoder [--texts FILE] [--out FILE]

Each round measures every way once, so that the ratios hold on a busy machine too. `queue` is the
encoder queue of the service, in front of ONNX Runtime (on a CPU). To compare rankings, each text
is the last utterance of a context and ranks all texts as candidates; the reference is torch
float32. The file of `--texts` has one text on each line. The settings name the model.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.pools import plain_encoder, sayings
from benchmarks.record import Rows, arguments, run
from turnwise.models.arrays import Float32
from turnwise.models.cores import usable_cores
from turnwise.models.encoder.torch import UtteranceEncoder, batches
from turnwise.models.roles import Relation, Role, RoleText, candidate_inputs
from turnwise.service.encoder.queue import EncoderQueue, Priority
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings

Way = Callable[[list[RoleText]], Awaitable[Float32]]

EXACT = "torch float32"
LENGTHS = (10, 20, 40)
BATCHES = (4, 10, 64)
REST = 0.02
"""Seconds of pause between two ways, because idle threads of torch spin for a while."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--texts", type=Path, help="file with a text on each line")
    parser.add_argument("--made", type=int, default=300, help="number of texts to make up")
    parser.add_argument("--rounds", type=int, default=5)
    run(parser, {"made": 20, "rounds": 1}, lambda options: asyncio.run(measure(options)))


async def measure(options: argparse.Namespace) -> Rows:
    torch.set_num_threads(usable_cores())
    settings = Settings()
    cache = settings.data_dir / "models"
    served = UtteranceEncoder.for_serving(settings.model, cache=cache)
    queue = EncoderQueue(served, Metrics(), limit=10_000, batch_tokens=4096)
    await queue.start()
    rows = await compare(options, served, ways(served, queue))
    await queue.drain(5.0)
    return rows


def ways(served: UtteranceEncoder, queue: EncoderQueue) -> dict[str, Way]:
    """Return the functions that encode a batch of texts, by name."""
    exact = plain_encoder()
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


async def compare(
    options: argparse.Namespace, served: UtteranceEncoder, every: dict[str, Way]
) -> Rows:
    rows = Rows()
    sizes = [(1, length) for length in LENGTHS] + [(size, 26) for size in BATCHES]
    for size, length in sizes:
        items = of_length(served, length) * size
        for name, took in (await timed(every, items, options.rounds)).items():
            rows.add(
                way=name, texts=size, word_pieces=length, median_ms=median(took), least_ms=min(took)
            )
    texts = list(islice(sayings(), options.made))
    if options.texts:
        texts = list(dict.fromkeys(options.texts.read_text(encoding="utf-8").splitlines()))
    await agreement(every, texts, served, rows)
    return rows


def of_length(encoder: UtteranceEncoder, length: int) -> list[RoleText]:
    """Return one utterance of about `length` word pieces, including prefix and special tokens."""
    words = " ".join(islice(sayings(), 9)).split()
    cut = [RoleText(" ".join(words[:n]), Role.SECOND, Relation.OTHER) for n in range(1, len(words))]
    return [max(cut, key=lambda item: -abs(len(encoder.tokenize([item])[0]) - length))]


async def timed(
    every: dict[str, Way], items: list[RoleText], rounds: int
) -> dict[str, list[float]]:
    """Return the milliseconds of each call, by the name of the way."""
    times: dict[str, list[float]] = {name: [] for name in every}
    for _ in range(rounds):
        for name, way in every.items():
            await asyncio.sleep(REST)
            await way(items)  # the way before has left cold caches
            for _ in range(max(1, 10 // len(items))):
                begin = time.perf_counter()
                await way(items)
                times[name].append((time.perf_counter() - begin) * 1e3)
    return times


async def agreement(
    every: dict[str, Way], texts: list[str], encoder: UtteranceEncoder, rows: Rows
) -> None:
    """Add the share of queries with the same best candidate, and the overlap of the ten best."""
    wanted = await vectors(every[EXACT], texts, encoder)
    best = top_10(*wanted)
    for name, way in every.items():
        got = await vectors(way, texts, encoder)
        found = top_10(*got)
        rows.add(
            way=name,
            compared_texts=len(texts),
            same_best=float((found[:, 0] == best[:, 0]).mean()),
            same_top_10=shared(found, best),
            most_difference=max(
                float(np.abs(a - b).max()) for a, b in zip(got, wanted, strict=True)
            ),
        )


async def vectors(way: Way, texts: list[str], encoder: UtteranceEncoder) -> tuple[Float32, Float32]:
    """Return the vectors of every text, as a candidate and as an utterance of the other speaker."""
    return (
        await encoded(way, candidate_inputs(texts), encoder),
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


def shared(found: NDArray[np.intp], best: NDArray[np.intp]) -> float:
    """Return the share of the best candidates of each query that were found."""
    pairs = zip(found, best, strict=True)
    return float(np.mean([len(set(a) & set(b)) for a, b in pairs])) / best.shape[1]


if __name__ == "__main__":
    main()
