"""Compares a model in 8 bits with the same model in float32: time, turns, and rankings.

The processor must have instructions for products of 8 bits. A model that was not trained for them
is rounded as it is. All measurements alternate. To compare rankings, each text is the last
utterance of a context and ranks all texts as candidates.

    python -m benchmarks.eight_bits [--texts FILE] [--out FILE]
"""

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

from benchmarks.encoder import direct, of_length, shared, timed, top_10, vectors
from benchmarks.heads import one_client
from benchmarks.load import many_clients
from benchmarks.pools import REPLIES, sayings
from benchmarks.record import Rows, arguments, run
from benchmarks.serving import Connection, Served, pool, served
from turnwise.models.cores import multiplies_bytes
from turnwise.models.encoder import eight_bits
from turnwise.models.encoder.onnx import EIGHT_BITS_FILE, OnnxEncoder
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import candidate_inputs
from turnwise.service.cli.models.card import card
from turnwise.service.settings import Settings

WAYS = ("float32", "8 bits")
_SCALE_TEXTS = 100
_SIZES = ((1, 10), (1, 20), (1, 40), (32, 20))
"""Texts of a batch, and the word pieces of each."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=100, help="of the one client, in a round")
    parser.add_argument("--sessions", type=int, default=32, help="that talk at once")
    parser.add_argument("--each", type=int, default=20, help="turns of each of them, in a round")
    parser.add_argument("--pool", type=pool, default=REPLIES)
    parser.add_argument("--texts", type=Path, help="file with a text on each line")
    parser.add_argument("--made", type=int, default=1500, help="number of texts to make up")
    run(parser, {"rounds": 1, "turns": 4, "sessions": 2, "each": 2, "made": 20}, measure)


def measure(options: argparse.Namespace) -> Rows:
    if not (multiplies_bytes() or options.toy):
        raise SystemExit("this processor has no instructions for products of 8 bits")
    rows = Rows()
    with both() as models:
        asyncio.run(encoders(options, models, rows))
        settings = {name: str(folder) for name, folder in models.items()}
        with (
            served(options.pool, TURNWISE_MODEL=settings["float32"]) as plain,
            served(options.pool, TURNWISE_MODEL=settings["8 bits"]) as eight,
        ):
            services = dict(zip(WAYS, (plain, eight), strict=True))
            asyncio.run(turns(options, services, rows))
    return rows


@contextmanager
def both() -> Iterator[dict[str, Path]]:
    """Yield two copies of the settings' model: without a graph in 8 bits, and with one."""
    with tempfile.TemporaryDirectory() as temporary:
        plain, eight = (Path(temporary) / name / "model" for name in ("plain", "eight"))
        shutil.copytree(Settings().model, eight)
        if not (eight / EIGHT_BITS_FILE).exists():
            encoder = UtteranceEncoder(eight, device="cpu")
            items = candidate_inputs(islice(sayings(), _SCALE_TEXTS))
            eight_bits.simulate(encoder.model, encoder.tokenize(items))
            eight_bits.save(encoder.model, eight)
            card(str(eight))
        shutil.copytree(eight, plain, ignore=shutil.ignore_patterns(EIGHT_BITS_FILE))
        yield dict(zip(WAYS, (plain, eight), strict=True))


async def encoders(options: argparse.Namespace, models: dict[str, Path], rows: Rows) -> None:
    """Add the time of batches, and the agreement of the ten best candidates."""
    loaded = {name: OnnxEncoder(folder) for name, folder in models.items()}
    ways = {name: direct(encoder) for name, encoder in loaded.items()}
    encoder = loaded["float32"]
    for size, length in _SIZES:
        took = await timed(ways, of_length(encoder, length) * size, options.rounds)
        figures = {name: median(times) for name, times in took.items()}
        compared(rows, f"{size} of {length} word pieces, ms", figures)
    texts = list(islice(sayings(), options.made))
    if options.texts:
        texts = list(dict.fromkeys(options.texts.read_text(encoding="utf-8").splitlines()))
    exact, rounded = [top_10(*await vectors(ways[name], texts, encoder)) for name in WAYS]
    what = f"share of the ten best of {len(texts)} texts that stay"
    rows.add(what=what, eight_bits=shared(rounded, exact))


async def turns(options: argparse.Namespace, services: dict[str, Served], rows: Rows) -> None:
    """Add the time of one client's turns, and the turns a second of many."""
    took: dict[str, list[float]] = {name: [] for name in services}
    rates: dict[str, list[float]] = {name: [] for name in services}
    for seed in range(options.rounds):
        for name, service in services.items():
            took[name] += await one_client(await Connection.open(service.port), options.turns)
            load = await many_clients(service.port, options.sessions, options.each, 1000 * seed)
            rates[name].append(load.turns_per_second)
    compared(rows, "turn of one client, ms", {n: median(times) for n, times in took.items()})
    what = f"turns a second at {options.sessions} sessions"
    compared(rows, what, {name: median(found) for name, found in rates.items()})


def compared(rows: Rows, what: str, figures: dict[str, float]) -> None:
    plain, eight = (figures[name] for name in WAYS)
    rows.add(what=what, float32=plain, eight_bits=eight, ratio=eight / plain)


if __name__ == "__main__":
    main()
