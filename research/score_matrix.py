"""Bytes and time of a turn: the score matrix of C3L against the running query.

    python research/score_matrix.py

The released code multiplies the mixtures of a new utterance, one for each earlier utterance, by all
candidates, and adds the products to a sum for each candidate, which a session keeps. With "last l
rows" it keeps the products of l rows instead. Turnwise adds the mixtures to one row, and multiplies
the sum of rows by all candidates. Both times are processor time of a turn without the encoder, in
float32 on one thread: the least of many.
"""

import argparse
import time
from collections.abc import Callable

import torch

DIMENSION = 384
KEPT_ROWS = 2
"""Rows that "last l rows" keeps."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--utterances", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--candidates", type=int, nargs="+", default=[1_000, 100_000])
    options = parser.parse_args()
    torch.set_num_threads(1)
    head = ("utterances", "candidates", "sums", "matrix of 2 rows", "running query", "ms", "ms")
    print(*head, sep=" | ")
    for candidates in options.candidates:
        after = unit(candidates)
        for n in options.utterances:
            sums = 4 * candidates
            matrix = 4 * KEPT_ROWS * n * candidates
            query = 4 * DIMENSION * (1 + KEPT_ROWS)
            times = [milliseconds(make(n, after)) for make in (make_released_turn, make_turn)]
            print(n, candidates, sums, matrix, query, *(f"{ms:.2f}" for ms in times), sep=" | ")


def unit(count: int) -> torch.Tensor:
    """Return random unit vectors (count, d), always the same."""
    vectors = torch.randn(count, DIMENSION, generator=torch.manual_seed(0))
    return torch.nn.functional.normalize(vectors, dim=1)


def make_released_turn(n: int, after: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return a turn of the released code: utterance n, with the scores (C,) of all pairs."""
    first = unit(n - 1)
    second = unit(1)
    sums = torch.zeros(len(after))

    def turn() -> torch.Tensor:
        mixtures = torch.nn.functional.normalize((first + second) / 2, dim=1)
        return torch.topk(sums + torch.matmul(mixtures, after.T).sum(dim=0), 5).values

    return turn


def make_turn(n: int, after: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return a turn of Turnwise: utterance n, with a running query (d,)."""
    first = unit(n - 1)
    second = unit(1)
    total = torch.zeros(DIMENSION)

    def turn() -> torch.Tensor:
        row = torch.nn.functional.normalize(first + second, dim=1).sum(dim=0)
        return torch.topk(after @ (total + row), 5).values

    return turn


def milliseconds(turn: Callable[[], object], times: int = 31) -> float:
    """Return the least processor time of some turns."""
    taken = []
    for _ in range(times):
        start = time.thread_time()
        turn()
        taken.append(1000 * (time.thread_time() - start))
    return min(taken)


if __name__ == "__main__":
    main()
