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
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.heads import one_client
from benchmarks.load import many_clients
from benchmarks.pools import REPLIES, sayings
from benchmarks.record import Rows, arguments, run
from benchmarks.serving import Connection, Served, pool, served
from turnwise.models.arrays import Float32
from turnwise.models.cores import multiplies_bytes
from turnwise.models.encoder import eight_bits
from turnwise.models.encoder.onnx import EIGHT_BITS_FILE, OnnxEncoder
from turnwise.models.encoder.torch import UtteranceEncoder, batches, transformer_of
from turnwise.models.roles import Relation, Role, RoleText, candidate_inputs
from turnwise.service.cli.models.card import card
from turnwise.service.settings import Settings

MODELS = ("float32", "8 bits")
_SCALE_TEXTS = 100
_SIZES = ((1, 10), (1, 20), (1, 40), (32, 20))
"""Texts of a batch, and the word pieces of each."""
_PAUSE = 0.02
"""Seconds between two encoders, because idle threads of torch spin for a while."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=100, help="turns of the one client in a round")
    parser.add_argument("--sessions", type=int, default=32, help="sessions that talk at once")
    parser.add_argument("--each", type=int, default=20, help="turns of each session in a round")
    parser.add_argument("--pool", type=pool, default=REPLIES)
    parser.add_argument("--texts", type=Path, help="file with a text on each line")
    parser.add_argument("--made", type=int, default=1500, help="number of texts to make up")
    run(parser, {"rounds": 1, "turns": 4, "sessions": 2, "each": 2, "made": 20}, measure)


def measure(options: argparse.Namespace) -> Rows:
    if not (multiplies_bytes() or options.toy):
        raise SystemExit("this processor has no instructions for products of 8 bits")
    rows = Rows()
    with both_models() as models:
        compare_encoders(options, models, rows)
        settings = {name: str(folder) for name, folder in models.items()}
        with (
            served(options.pool, TURNWISE_MODEL=settings["float32"]) as plain,
            served(options.pool, TURNWISE_MODEL=settings["8 bits"]) as eight,
        ):
            services = dict(zip(MODELS, (plain, eight), strict=True))
            asyncio.run(compare_turns(options, services, rows))
    return rows


@contextmanager
def both_models() -> Iterator[dict[str, Path]]:
    """Yield two copies of the settings' model: without a graph in 8 bits, and with one."""
    with tempfile.TemporaryDirectory() as temporary:
        plain = Path(temporary) / "plain" / "model"
        eight = Path(temporary) / "eight" / "model"
        shutil.copytree(Settings().model, eight)
        if not (eight / EIGHT_BITS_FILE).exists():
            encoder = UtteranceEncoder(eight, device="cpu")
            transformer = transformer_of(encoder.model)
            items = candidate_inputs(islice(sayings(), _SCALE_TEXTS))
            eight_bits.simulate(
                transformer, lambda: [encoder.forward([ids]) for ids in encoder.tokenize(items)]
            )
            eight_bits.save(transformer, eight)
            card(str(eight))
        shutil.copytree(eight, plain, ignore=shutil.ignore_patterns(EIGHT_BITS_FILE))
        yield dict(zip(MODELS, (plain, eight), strict=True))


def compare_encoders(options: argparse.Namespace, models: dict[str, Path], rows: Rows) -> None:
    """Add the time of batches, and the agreement of the ten best candidates."""
    encoders = {name: OnnxEncoder(folder) for name, folder in models.items()}
    for size, length in _SIZES:
        batch = [utterance_of(length, encoders["float32"])] * size
        times = time_batch(encoders, batch, options.rounds)
        medians = {name: median(milliseconds) for name, milliseconds in times.items()}
        add_comparison(rows, f"{size} of {length} word pieces, ms", medians)
    texts = list(islice(sayings(), options.made))
    if options.texts:
        texts = list(dict.fromkeys(options.texts.read_text(encoding="utf-8").splitlines()))
    exact, rounded = (ten_best(encoders[name], texts) for name in MODELS)
    what = f"share of the ten best of {len(texts)} texts that stay"
    rows.add(what=what, eight_bits=overlap(rounded, exact))


def utterance_of(length: int, encoder: OnnxEncoder) -> RoleText:
    """Return an utterance of about `length` word pieces, including prefix and special tokens."""
    words = " ".join(islice(sayings(), 9)).split()
    utterances = [
        RoleText(" ".join(words[:n]), Role.SECOND, Relation.OTHER) for n in range(1, len(words))
    ]
    return min(utterances, key=lambda item: abs(len(encoder.tokenize([item])[0]) - length))


def time_batch(
    encoders: dict[str, OnnxEncoder], batch: list[RoleText], rounds: int
) -> dict[str, list[float]]:
    """Return the milliseconds of each call, by the name of the encoder."""
    times: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(rounds):
        for name, encoder in encoders.items():
            time.sleep(_PAUSE)
            encoder.forward(encoder.tokenize(batch))  # the encoder before has left cold caches
            for _ in range(max(1, 10 // len(batch))):
                begin = time.perf_counter()
                encoder.forward(encoder.tokenize(batch))
                times[name].append((time.perf_counter() - begin) * 1e3)
    return times


def ten_best(encoder: OnnxEncoder, texts: Sequence[str]) -> NDArray[np.intp]:
    """Return the ten best candidates (n, 10) of each text, as indices into the texts."""
    candidates = encode(encoder, candidate_inputs(texts))
    queries = encode(encoder, [RoleText(text, Role.SECOND, Relation.OTHER) for text in texts])
    return np.argsort(-(queries @ candidates.T), axis=1, kind="stable")[:, :10]


def encode(encoder: OnnxEncoder, items: list[RoleText]) -> Float32:
    """Return the vectors (n, d) of texts in batches of similar length."""
    vectors = np.empty((len(items), encoder.dimension), np.float32)
    for indices in batches([len(ids) for ids in encoder.tokenize(items)], 1024):
        vectors[indices] = encoder.forward(encoder.tokenize([items[i] for i in indices]))
    return vectors


def overlap(found: NDArray[np.intp], best: NDArray[np.intp]) -> float:
    """Return the mean share of each query's best candidates (n, k) that were found (n, k)."""
    pairs = zip(found, best, strict=True)
    shared = sum(len(np.intersect1d(some, wanted)) for some, wanted in pairs)
    return shared / best.size


async def compare_turns(
    options: argparse.Namespace, services: dict[str, Served], rows: Rows
) -> None:
    """Add the time of one client's turns, and the turns a second of many."""
    took: dict[str, list[float]] = {name: [] for name in services}
    rates: dict[str, list[float]] = {name: [] for name in services}
    for seed in range(options.rounds):
        for name, service in services.items():
            took[name] += await one_client(await Connection.open(service.port), options.turns)
            load = await many_clients(service.port, options.sessions, options.each, 1000 * seed)
            rates[name].append(load.turns_per_second)
    medians = {name: median(milliseconds) for name, milliseconds in took.items()}
    add_comparison(rows, "turn of one client, ms", medians)
    what = f"turns a second at {options.sessions} sessions"
    add_comparison(rows, what, {name: median(found) for name, found in rates.items()})


def add_comparison(rows: Rows, what: str, figures: dict[str, float]) -> None:
    plain, eight = (figures[name] for name in MODELS)
    rows.add(what=what, float32=plain, eight_bits=eight, ratio=eight / plain)


if __name__ == "__main__":
    main()
