"""One new turn, encoding included, against the published library: time, memory, agreement.

Both get the same model, context, candidates and texts, in blocks of turns that alternate, in the
same process; the first turn of a block, which finds cold caches, does not count. Ours is the
whole use case behind `/sessions/{id}/turn`: Redis, encoder queue, search, append; only HTTP is left
out. The library encodes, scores and sorts; its state stays in memory. Candidates are vectors made
like a pool's: those of example replies, mixed and blurred, so that millions need no encoding.

    pip install --no-deps triple-encoders; pip install pandas
    python benchmarks/turn.py [--sizes 1000 10000 100000 1000000] [--contexts 2 10 50] [--turns 15]
"""

import argparse
import asyncio
import copy
import os
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import uvloop
from pools import REPLIES, SEEDS, context_vectors, pool_like, queries_like, replies
from redis.asyncio import Redis
from sayings import sayings

from turnwise.models import DEFAULT_MODEL
from turnwise.models.arrays import Float32
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.roles import Role
from turnwise.models.scores import rows, running_query
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.encoder.queue import EncoderQueue
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import Candidate, PoolView
from turnwise.service.pools.contents import Contents, Segment
from turnwise.service.pools.index import FlatIndex, Index
from turnwise.service.pools.ivf import build_ivf
from turnwise.service.pools.workers import Workers
from turnwise.service.selection.context import Contexts
from turnwise.service.selection.rerank import Reranking
from turnwise.service.selection.select import Selector
from turnwise.service.selection.sessions import Sessions
from turnwise.service.selection.turn import Turns
from turnwise.service.sessions.store import SessionStore
from turnwise.service.state.private_redis import PrivateRedis
from turnwise.service.state.redis import connect
from turnwise.service.wire.sessions import TurnRequest

_BLOCKS = 3
_REST = 0.5
"""Seconds between blocks: idle threads of torch and ONNX Runtime spin for a while, and would take
the cores from whatever is measured next."""


class FixedPool:
    """A pool that never changes, where the use case looks for it."""

    shown: PoolView

    def view(self, _namespace: str, _name: str) -> PoolView:
        return self.shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--contexts", type=int, nargs="+", default=[2, 10, 50])
    parser.add_argument("--turns", type=int, default=8, help="of a block, of which there are three")
    parser.add_argument("--replies", type=Path, default=REPLIES)
    parser.add_argument("--approximate", type=int, default=100_000, help="size from which on")
    uvloop.run(measure(parser.parse_args()))


async def measure(options: argparse.Namespace) -> None:
    library, plain = Library(), UtteranceEncoder(device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        encoder = UtteranceEncoder.for_serving(device="cpu", cache=Path(folder))
        seeds = plain.encode(replies(options.replies), Role.AFTER)
        queue = EncoderQueue(encoder, Metrics(), limit=4096, batch_tokens=4096)
        await queue.start()
        async with (
            PrivateRedis(Path(folder) / "redis") as private,
            connect(private.url, cluster=False, timeout=10) as redis,
        ):
            ours = Ours(redis, encoder, queue)
            print("candidates context | library ms  ours ms  ratio | library KB  ours KB | top 10")
            for size in options.sizes:
                vectors = pool_like(seeds, size)
                library.load(vectors)
                flat = ours.flat(vectors)
                await compare(library, ours, plain, vectors, flat, options)
                if size >= options.approximate:
                    await compare(
                        library, ours, plain, vectors, build_ivf(flat, queries_like(plain)), options
                    )
        await queue.drain(10)


async def compare(  # noqa: PLR0917
    library: "Library",
    ours: "Ours",
    plain: UtteranceEncoder,
    vectors: Float32,
    index: Index,
    options: argparse.Namespace,
) -> None:
    ours.search(index)
    name = "exact" if index.recall is None else f"approximate, recall@10 {index.recall:.3f}"
    for context in options.contexts:
        said = list(islice(sayings(next(SEEDS)), context - 1 + _BLOCKS * options.turns))
        before, news = said[: context - 1], said[context - 1 :]
        state = library.begin(before)
        await ours.begin(before)
        peer: list[float] = []
        own: list[float] = []
        overlaps = []
        for start in range(0, len(news), options.turns):
            block = news[start : start + options.turns]
            await asyncio.sleep(_REST)
            peer += [library.turn(state, text) for text in block][1:]
            await asyncio.sleep(_REST)
            turns = [await ours.turn(text) for text in block]
            own += [seconds for seconds, _ in turns][1:]
            for text, (_, found) in zip(block, turns, strict=True):
                overlaps.append(len({*found} & exact_top(plain, [*before, text], vectors)) / 10)
        p, o = median(peer) * 1e3, median(own) * 1e3
        print(
            f"{len(vectors):10} {context:7} | {p:10.1f} {o:8.1f} {p / o:6.1f} | "
            f"{library.kilobytes(state):10.0f} {await ours.kilobytes():8.0f} | "
            f"{np.mean(overlaps):.3f} {name}",
            flush=True,
        )


def exact_top(plain: UtteranceEncoder, said: Sequence[str], vectors: Float32) -> set[int]:
    """Return the best ten by eq. 3 in float32 throughout, torch's encoder, every candidate."""
    scores = vectors @ running_query(rows(*context_vectors(plain, said)))
    return set(np.argsort(-scores)[:10].tolist())


class Library:
    """The published implementation, as its README uses it."""

    def __init__(self) -> None:
        from triple_encoders.TripleEncodersForConversationalSequenceModeling import (  # noqa: PLC0415
            TripleEncodersForConversationalSequenceModeling as Peer,
        )

        self._peer = Peer(str(DEFAULT_MODEL))
        self._peer.model.float()  # as ours computes; the weights are stored in float16

    def load(self, vectors: Float32) -> None:
        self._peer.candidates = range(len(vectors))
        self._peer.candidates_embeddings = torch.from_numpy(vectors)

    def begin(self, said: Sequence[str]) -> Any:  # noqa: ANN401 - the library's own type
        state: Any = None
        for turn, text in enumerate(said):
            state = self._peer.contextualize_utterance(text, state, dialog_partner=turn % 2 == 0)
        state.sum_computed_scores = torch.zeros(len(self._peer.candidates_embeddings))
        return state

    def turn(self, state: Any, text: str) -> float:  # noqa: ANN401
        state = copy.deepcopy(state)
        begin = time.perf_counter()
        state = self._peer.contextualize_utterance(text, state, dialog_partner=True)
        self._peer.retrieve_candidates(self._peer.sequence_modeling(state), 10)
        return time.perf_counter() - begin

    @staticmethod
    def kilobytes(state: Any) -> float:  # noqa: ANN401
        tensors = [value for value in vars(state).values() if isinstance(value, torch.Tensor)]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors) / 1024


class Ours:
    """The use case of a turn with everything under it."""

    def __init__(self, redis: Redis, encoder: UtteranceEncoder, queue: EncoderQueue) -> None:
        metrics = Metrics()
        self._redis, self._queue, self._metrics = redis, queue, metrics
        cached = CachedEncoder(queue, encoder, metrics, size=10_000)
        sessions = SessionStore(redis, metrics, dimension=encoder.dimension, ttl=3600)
        contexts = Contexts(sessions, cached, timeout=60)
        self._workers = Workers(os.cpu_count() or 1)
        self._pool = FixedPool()
        pools: Any = self._pool
        reranking = Reranking(None, metrics, short_list=100, timeout=60)
        self._turns = Turns(
            sessions=sessions,
            contexts=contexts,
            pools=pools,
            encoder=cached,
            selector=Selector(reranking, None),
            reranking=reranking,
            metrics=metrics,
            max_turns=1000,
            timeout=60,
        )
        self._sessions = Sessions(sessions, contexts, pools, cached)
        self._said = 0

    def search(self, index: Index) -> None:
        candidates = tuple(Candidate(str(place), "") for place in range(len(index)))
        nothing = Contents.empty(index.dimension)
        contents = Contents(Segment(candidates, index), nothing.overlay)
        self._pool.shown = PoolView("default", 1, "default", contents, self._workers, self._metrics)

    def flat(self, vectors: Float32) -> FlatIndex:
        return self._workers.flat(vectors.astype(np.float16))

    async def begin(self, said: Sequence[str]) -> None:
        await self._redis.flushall()
        self._said = 0
        for text in said:
            await self._post(text, respond=False)
            self._said += 1

    async def turn(self, text: str) -> tuple[float, list[int]]:
        begin = time.perf_counter()
        found = await self._post(text, respond=True)
        seconds = time.perf_counter() - begin
        await self._turns.close()  # the idle work
        await self._sessions.undo("benchmark", "s")
        return seconds, found

    async def kilobytes(self) -> float:
        keys = await self._redis.keys("*")
        return sum([await self._redis.memory_usage(key, samples=0) for key in keys]) / 1024

    async def _post(self, text: str, *, respond: bool) -> list[int]:
        speaker = "user" if self._said % 2 == 0 else "bot"
        request = TurnRequest(
            speaker=speaker, text=text, respond=respond, top_k=10, aggregation="mean"
        )
        answer = await self._turns.turn("benchmark", "s", request)
        return [int(candidate.id) for candidate in answer.candidates]


if __name__ == "__main__":
    main()
