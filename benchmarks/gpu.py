"""Measures a GPU against the CPU: vectors, encoding, and turns per second with and without heads.

One command of at most ten minutes for a machine with a GPU; without one, it measures the CPU. Two
services with the same weights, one without heads and one with new ones, alternate in every number
of sessions.

    python -m benchmarks.gpu [--sessions 1 32 256] [--out FILE]
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from statistics import median

import numpy as np
import torch

from benchmarks.heads import serve_both
from benchmarks.load import many_clients
from benchmarks.pools import REPLIES, plain_encoder, sayings
from benchmarks.record import Rows, arguments, run, taken
from benchmarks.serving import pool
from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import Precision, UtteranceEncoder, default_device
from turnwise.models.roles import Relation, Role, said_inputs
from turnwise.service.settings import Settings


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--texts", type=int, default=512, help="texts whose vectors are compared with the CPU's"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 128, 512])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--turns", type=int, default=1500, help="turns of all sessions together")
    parser.add_argument("--pool", type=pool, default=REPLIES)
    toy = {"texts": 8, "batches": [1, 4], "repeats": 2, "sessions": [1, 4], "turns": 12}
    run(parser, toy, measure)


def measure(options: argparse.Namespace) -> Rows:
    rows = Rows()
    device = default_device(None)
    name = torch.cuda.get_device_name() if device == "cuda" else "none"
    rows.add(what="device", device=device, gpu=name, torch_threads=torch.get_num_threads())
    compare_vectors(options, device, rows)
    measure_turns(options, rows)
    return rows


def compare_vectors(options: argparse.Namespace, device: str, rows: Rows) -> None:
    """Compare vectors with those of the CPU in float32, and time batches."""
    texts = list(islice(sayings(), max(options.texts, *options.batches)))
    wanted = encode(plain_encoder(), texts[: options.texts])
    precisions: tuple[Precision, ...] = ("float32", "float16" if device == "cuda" else "bfloat16")
    for precision in precisions:
        encoder = UtteranceEncoder(Settings().model, device=device, precision=precision)
        got = encode(encoder, texts[: options.texts])
        cosine = (got * wanted).sum(axis=1)
        best = [(x @ wanted.T).argsort(axis=1)[:, -10:] for x in (got, wanted)]
        shared = [len(np.intersect1d(*pair)) / len(pair[0]) for pair in zip(*best, strict=True)]
        rows.add(
            what="vectors",
            precision=precision,
            least_cosine=float(cosine.min()),
            overlap_of_ten_best=float(np.mean(shared)),
        )
        for size in options.batches:
            seconds = batch_seconds(encoder, texts[:size], options.repeats)
            rows.add(
                what="batch",
                precision=precision,
                texts=size,
                median_ms=seconds * 1e3,
                texts_per_second=size / seconds,
            )


def encode(encoder: UtteranceEncoder, texts: Sequence[str]) -> Float32:
    """Return the vectors (n, d) of texts as newest utterances."""
    return encoder.encode(texts, Role.SECOND, Relation.OTHER)


def batch_seconds(encoder: UtteranceEncoder, texts: Sequence[str], repeats: int) -> float:
    """Return the median seconds of one batch, tokenization excluded."""
    tokens = encoder.tokenize(said_inputs(texts))
    encoder.forward(tokens)
    # The vectors come back to the CPU, so nothing is left to run.
    return median(taken(lambda: encoder.forward(tokens)) for _ in range(repeats))


def measure_turns(options: argparse.Namespace, rows: Rows) -> None:
    """Measure turns a second and their times, by the number of sessions."""
    with serve_both(options.pool) as services:
        for sessions in options.sessions:
            each = max(options.turns // sessions, 2)
            for name, service in services.items():
                load = asyncio.run(many_clients(service.port, sessions, each, 1000 * sessions))
                rows.add(what="turns", sessions=sessions, model=name, **asdict(load))


if __name__ == "__main__":
    main()
