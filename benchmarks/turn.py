"""Compares one new turn with the published library: time and memory.

Both get the same weights, context, candidates and texts, in the same process, in alternating
blocks of turns. The library does not apply heads: it reads a text with a prefix for each role. So
the rankings of Turnwise are compared with eq. 3 in float32 instead. The first turn of a block
finds cold caches and does not count. The clock of Turnwise covers the use case behind
`/sessions/{id}/turn`: read of Redis, encoder queue, search, commit. It leaves out HTTP and, of a
model without heads, the [B1] vector that Turnwise encodes after the answer. The clock of the
library covers encoding, scoring and sorting; its state stays in memory. Without the library, the
program measures only Turnwise.

    pip install --no-deps triple-encoders; pip install pandas
    python -m benchmarks.turn [--sizes 1000 100000] [--contexts 2 10 50] [--turns 8] [--out FILE]
"""

import argparse
import asyncio
import copy
import os
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
import uvloop
from redis.asyncio import Redis

from benchmarks.pools import (
    SEEDS,
    context_vectors,
    plain_encoder,
    pool_like,
    queries_like,
    replies,
    sayings,
)
from benchmarks.record import Rows, arguments, run
from benchmarks.serving import link_models
from turnwise.models.arrays import Float32
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import Role
from turnwise.models.scores import rows, running_query
from turnwise.service.api.services import Services
from turnwise.service.app.wiring import create_app
from turnwise.service.pools import Candidate
from turnwise.service.pools.memory.contents import Contents
from turnwise.service.pools.memory.flat import FlatIndex, Index
from turnwise.service.pools.memory.ivf import build_ivf
from turnwise.service.pools.memory.local_view import LocalView
from turnwise.service.pools.memory.segment import Lookups, Segment
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.redis.private import running_url
from turnwise.service.settings import Settings
from turnwise.service.wire.pools import PoolSettings
from turnwise.service.wire.sessions import TurnRequest

_REST = 0.5
"""Seconds of pause between blocks. Idle threads of torch and ONNX Runtime spin for a while, and
would take the cores from the next block."""
_NAMESPACE = "benchmark"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--contexts", type=int, nargs="+", default=[2, 10, 50])
    parser.add_argument("--turns", type=int, default=8, help="turns of a block")
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument(
        "--approximate", type=int, default=100_000, help="size from which to use both indexes"
    )
    toy = {"sizes": [1000], "contexts": [2], "turns": 2, "blocks": 1}
    run(parser, toy, lambda options: uvloop.run(measure(options)))


async def measure(options: argparse.Namespace) -> Rows:
    library = Library.find()
    plain = plain_encoder()
    found = Rows()
    seeds = plain.encode(replies(), Role.AFTER)
    async with Ours.running() as ours:
        for size in options.sizes:
            vectors = pool_like(seeds, size)
            flat = ours.flat(vectors)
            await compare(library, ours, plain, vectors, flat, options, found)
            if size >= options.approximate:
                ivf = build_ivf(flat, queries_like(plain))
                await compare(library, ours, plain, vectors, ivf, options, found)
    return found


async def compare(  # noqa: PLR0917
    library: "Library | None",
    ours: "Ours",
    plain: UtteranceEncoder,
    vectors: Float32,
    index: Index,
    options: argparse.Namespace,
    found: Rows,
) -> None:
    ours.search(index)
    if library:
        library.load(vectors)
    for context in options.contexts:
        said = list(islice(sayings(next(SEEDS)), context - 1 + options.blocks * options.turns))
        before = said[: context - 1]
        news = said[context - 1 :]
        state = library.begin(before) if library else None
        await ours.begin(before)
        peer = list[float]()
        own = list[float]()
        overlaps = list[float]()
        for start in range(0, len(news), options.turns):
            block = news[start : start + options.turns]
            if library:
                await asyncio.sleep(_REST)
                peer += [library.turn(state, text) for text in block][1:]
            await asyncio.sleep(_REST)
            turns = [await ours.turn(text) for text in block]
            own += [turn.seconds for turn in turns][1:]
            for text, turn in zip(block, turns, strict=True):
                best = exact_top(plain, [*before, text], vectors)
                overlaps.append(len({*turn.found} & best) / 10)
        found.add(
            candidates=len(vectors),
            index="exact" if index.recall is None else "approximate",
            recall_at_10=index.recall,
            context=context,
            library_ms=median(peer) * 1e3 if library else None,
            turnwise_ms=median(own) * 1e3,
            ratio=median(peer) / median(own) if library else None,
            library_kb=library.kilobytes(state) if library else None,
            turnwise_kb=await ours.kilobytes(),
            same_top_10=float(np.mean(overlaps)),
        )


def exact_top(plain: UtteranceEncoder, said: Sequence[str], vectors: Float32) -> set[int]:
    """Return the best ten of all candidates by eq. 3, in float32 throughout and with torch."""
    scores = vectors @ running_query(rows(*context_vectors(plain, said)))
    return set(np.argsort(-scores)[:10].tolist())


class Library:
    """The published implementation, used as its README does."""

    def __init__(self, peer: Any) -> None:  # noqa: ANN401 - the library's own type
        self._peer = peer
        self._peer.model.float()  # the weights are in float16, but Turnwise computes in float32

    @classmethod
    def find(cls) -> "Library | None":
        try:
            from triple_encoders.TripleEncodersForConversationalSequenceModeling import (  # noqa: PLC0415
                TripleEncodersForConversationalSequenceModeling as Peer,
            )
        except ImportError as error:
            print(f"without the published library: {error}")
            return None
        return cls(Peer(str(Settings().model)))

    def load(self, vectors: Float32) -> None:
        self._peer.candidates = range(len(vectors))
        self._peer.candidates_embeddings = torch.from_numpy(vectors)

    def begin(self, said: Sequence[str]) -> Any:  # noqa: ANN401
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


class Turn(NamedTuple):
    """A turn of the service.

    Attributes:
        seconds: Its time.
        processor_seconds: The processor time of all threads of this process.
        found: The numbers of its candidates.
    """

    seconds: float
    processor_seconds: float
    found: list[int]


class Ours:
    """The service without HTTP, over a given index instead of that of a pool."""

    def __init__(self, services: Services, redis: Redis) -> None:
        self._services = services
        self._redis = redis
        self._workers = Workers(os.cpu_count() or 1, services.metrics)
        self._session = ""
        self._said = 0

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["Ours"]:
        """Run the application in this process until the block ends."""
        with tempfile.TemporaryDirectory() as folder:
            link_models(Path(folder))
            app = create_app(Settings(data_dir=Path(folder), redis_url=None, default_pool=None))
            async with app.router.lifespan_context(app):
                url = running_url(Path(folder) / "redis") or ""
                async with Redis.from_url(url) as redis:
                    yield cls(app.state.services, redis)

    def search(self, index: Index) -> None:
        """Let all turns search this index, whichever pool they name."""
        candidates = tuple(Candidate(str(number), "") for number in range(len(index)))
        self.search_segment(Segment(candidates, Lookups.of(candidates), index))

    def search_segment(self, segment: Segment) -> None:
        """Let all turns search this segment, whichever pool they name."""
        contents = Contents(segment, Contents.empty(segment.index.dimension).overlay)
        metrics = self._services.metrics
        shown = LocalView("default", 1, "default", PoolSettings(), contents, self._workers, metrics)

        async def view(_namespace: str, _name: str) -> LocalView:
            return shown

        pools: Any = self._services.pools
        pools.view = view

    def flat(self, vectors: Float32) -> FlatIndex:
        return self._workers.flat(vectors.astype(np.float16))

    async def begin(self, said: Sequence[str]) -> None:
        self._session = f"s{next(SEEDS)}"
        self._said = 0
        for text in said:
            await self._post(text, respond=False)
            self._said += 1

    async def turn(self, text: str) -> Turn:
        begin = time.perf_counter()
        begin_processor = time.process_time()
        found = await self._post(text, respond=True)
        processor_seconds = time.process_time() - begin_processor
        seconds = time.perf_counter() - begin
        await self._services.turns.close()  # wait for the idle work
        await self._services.sessions.undo(_NAMESPACE, self._session)
        return Turn(seconds, processor_seconds, found)

    async def kilobytes(self) -> float:
        keys = await self._redis.keys(f"*{_NAMESPACE}/{self._session}*")
        sizes = [await self._redis.memory_usage(key, samples=0) or 0 for key in keys]
        return sum(sizes) / 1024

    async def _post(self, text: str, *, respond: bool) -> list[int]:
        speaker = "user" if self._said % 2 == 0 else "bot"
        request = TurnRequest(
            speaker=speaker, text=text, respond=respond, top_k=10, aggregation="mean"
        )
        answer = await self._services.turns.turn(_NAMESPACE, self._session, request)
        return [int(candidate.id) for candidate in answer.candidates]


if __name__ == "__main__":
    main()
