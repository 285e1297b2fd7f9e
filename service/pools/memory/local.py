"""`LocalPool`: a pool in memory, its limits, its log in Redis, its move into a candidate store."""

import gc
import math
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from time import monotonic

from turnwise.service.errors import PoolFull, PoolNotReady
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.encoding import Progress, encode_unknown
from turnwise.service.pools.memory.contents import Contents, Edit
from turnwise.service.pools.memory.flat import Float16
from turnwise.service.pools.memory.free_memory import Admission, Memory
from turnwise.service.pools.memory.workers import Workers
from turnwise.service.pools.pool import Backend, Pool
from turnwise.service.pools.redis.replay import Replay
from turnwise.service.pools.redis.values import NOWHERE, Entry, Head, Log, PoolKey, Position
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.pools.stores.new_collection import drop_unused, filled_collection, write
from turnwise.service.pools.view import Batch, LocalView
from turnwise.service.wire.pools import Edited, PoolInfo, PoolSettings, Removed

Plan = Callable[[Contents], tuple[list[Candidate], list[str]]]
"""Returns, for the current contents, the candidates to upsert and the ids to remove."""
CheckGrowth = Callable[[str, int], Awaitable[None]]
"""Takes a namespace and bytes; raises NamespaceFull if its pools may not grow by so many."""

_SMALL_CANDIDATE = Candidate("", "").memory
_INDEX_RETRY_SECONDS = 600.0
FROZEN = 10_000
"""Size from which the candidates are frozen (`gc.freeze`). All other objects are frozen with them,
so garbage cycles of that moment are never collected: for a small pool this does not pay."""

_NOT_READY = {
    "loading": "being read",
    "encoding": "being encoded for this replica's model",
    "damaged": "damaged: Redis lost a part of it; delete it and upload it again",
}


class LocalPool(Pool):
    """The newest version that was read completely; empty until the state is "ready".

    An edit makes one new version, or changes nothing.
    """

    def __init__(
        self,
        key: PoolKey,
        backend: Backend,
        workers: Workers,
        memory: Memory,
        metrics: Metrics,
        *,
        newest: Head,
        exact_limit: int,
        max_size: int,
        check_growth: CheckGrowth | None,
    ) -> None:
        super().__init__(key, backend, metrics, newest)
        self._workers, self.memory, self._check_growth = workers, memory, check_growth
        self._exact_limit, self._max_size = exact_limit, max_size
        self._replay = Replay(
            key, self.records, self.encoder, workers, self._admitted_read,
            self._is_encoding, self._is_reading,
        )  # fmt: skip
        self._contents = Contents.empty(self.encoder.dimension)
        self.log: Log | None = None
        """The log that made the contents; None before the first read."""
        self._progress: float | None = None
        """Share that is done of reading the pool or building its index; None if neither runs."""
        self._edits_during_build: list[Edit] | None = None
        """Edits since the build of an index began; None if none is being built."""
        self._index_failed_at = -math.inf

    @property
    def may_be_indexed(self) -> bool:
        """False for a while after a failed build: a build takes minutes and may fail again."""
        return monotonic() - self._index_failed_at > _INDEX_RETRY_SECONDS

    @property
    def position(self) -> Position:
        """The version of the contents."""
        return self.log.position if self.log else NOWHERE

    @property
    def head(self) -> Head | None:
        """The head of the version that is here; None before the first read."""
        if self.log is None:
            return None
        return Head(self.position.stamp, self.log.settings, self.encoder_name, "local")

    @property
    def contents(self) -> Contents:
        """The contents at `position`.

        Raises:
            PoolNotReady: The pool has not been read yet.
        """
        if self.state != "ready":
            raise PoolNotReady(f"pool '{self.key.name}' is {_NOT_READY[self.state]}")
        return self._contents

    @property
    def candidate_bytes(self) -> int:
        """Bytes of the candidates that are here."""
        return self._contents.candidate_bytes

    def view(self) -> LocalView:
        """Return the version that is here now."""
        return LocalView(
            self.key.name,
            self.position.version,
            self.encoder_name,
            self._settings,
            self.contents,
            self._workers,
            self._metrics,
        )

    def info(self) -> PoolInfo:
        """Return the description of the pool as clients get it."""
        contents, index = self._contents, self._contents.base.index
        return PoolInfo(
            name=self.key.name,
            version=self.position.version,
            size=len(contents),
            index=index.kind,
            exact=index.recall is None,
            recall_at_10=index.recall,
            encoder=self.encoder_name,
            store="local",
            model=self.encoder.name,
            fingerprint=self.encoder.fingerprint,
            state=self.state,
            created_at=self.log.created_at if self.log else 0.0,
            bytes=contents.bytes,
            progress=self._progress,
            **self._settings._asdict(),
        )

    @property
    def _settings(self) -> PoolSettings:
        return self.log.settings if self.log else PoolSettings()

    async def upsert(
        self, candidates: Sequence[Candidate], progress: Progress | None = None
    ) -> Edited:
        """Add or replace candidates in one version, or change nothing."""

        def plan(contents: Contents) -> tuple[list[Candidate], list[str]]:
            return _changed(contents, candidates), []

        edited = await self._edit(plan, {}, progress)
        return replace(edited, unchanged=len(candidates) - edited.upserted)

    async def remove(self, ids: Iterable[str]) -> Removed:
        """Remove candidates in one version, or change nothing."""
        wanted = list(dict.fromkeys(ids))
        gone: list[str] = []

        def plan(contents: Contents) -> tuple[list[Candidate], list[str]]:
            gone[:] = [id for id in wanted if id in contents]  # noqa: A001 - the field's name
            return [], list(gone)

        edited = await self._edit(plan, {})
        return Removed(edited.version, len(gone), len(wanted) - len(gone), edited.size)

    async def replace(self, batches: AsyncIterable[Batch]) -> Edited:
        """Replace all candidates in one version, or change nothing."""
        candidates: list[Candidate] = []
        vectors: dict[str, Float16] = {}
        async for batch, rows in batches:
            candidates += batch
            vectors.update(zip((candidate.text for candidate in batch), rows, strict=True))
        wanted = {candidate.id for candidate in candidates}

        def plan(contents: Contents) -> tuple[list[Candidate], list[str]]:
            gone = [c.id for c in contents.candidates() if c.id not in wanted]
            return _changed(contents, candidates), gone

        edited = await self._edit(plan, vectors)
        return replace(edited, unchanged=len(candidates) - edited.upserted)

    async def _edit(
        self, plan: Plan, vectors: dict[str, Float16], progress: Progress | None = None
    ) -> Edited:
        """Apply a plan in one new version; call it again if another edit was committed first."""
        staged: tuple[Edit, Entry] | None = None
        _ = self.contents  # fail now instead of waiting until the pool is read
        # Encoding takes long, so it runs without the lock, and its result is staged in Redis, where
        # no reader sees it. The plan is then called again under the lock: if it still gives the
        # staged edit, that is committed; otherwise it is discarded, and a new one is staged.
        with ExitStack() as admitted:
            while True:
                async with self._lock:
                    await self._catch_up()
                    planned = await self._workers.edit(lambda: self._planned(plan))
                    if not any(planned):
                        return Edited(self.position.version, 0, 0, len(self.contents))
                    await self._check_bytes(*planned)
                    if staged and (staged[0].candidates, staged[0].removed) == planned:
                        totals = await self._workers.edit(partial(self._totals, staged[0]))
                        outcome = await self.records.commit(
                            self.key, self.position, staged[1], totals
                        )
                        if outcome == "ok":
                            return await self._committed(*staged)
                        if outcome == "conflict":
                            continue
                if staged:
                    await self.records.discard(self.key, staged[1].chunks)
                candidates, removed = planned
                admitted.close()
                admitted.enter_context(self._admitted_upload(len(candidates)))
                edit = Edit(candidates, await self._encoded(candidates, vectors, progress), removed)
                staged = edit, await self.records.stage(self.key, edit)

    async def move_to(self, engine: CandidateStore) -> None:
        """Copy the candidates into a candidate store, and let the pool stand for the copy.

        Those that are edited meanwhile are copied again. If the copy fails, nothing is changed.

        Raises:
            StoreUnavailable: The engine is away.
            PoolMoved: Another replica moved the pool first.
        """
        await self.refresh()
        position, contents = self.position, self.contents
        log = await self.records.read(self.key)
        filled = await filled_collection(self.key, engine, self.encoder, self.view().scan())
        try:
            while not await self.records.move(
                self.key, position, log,
                store=engine.name, collection=filled, size=len(contents),
            ):  # fmt: skip
                await self.refresh()
                before, position, contents = contents, self.position, self.contents
                log = await self.records.read(self.key)
                edit = await self._workers.edit(partial(_difference, before, contents))
                await engine.remove(filled.name, edit.removed)
                await write(engine, filled.name, edit.candidates, edit.vectors)
        except BaseException:
            await drop_unused(self.records, self.key, engine, filled.name)
            raise

    async def replace_index(self, build: Callable[[Contents], Contents], needed: int) -> None:
        """Build another index of the same candidates, while edits and searches go on.

        If the build fails, usually for lack of memory, the pool keeps its index.

        Args:
            build: Builds it, in a thread.
            needed: Bytes of memory that it takes at most.

        Raises:
            NotEnoughMemory: Less is free.
        """
        contents, edits = self.contents, list[Edit]()
        self._edits_during_build = edits
        try:
            with self.memory.admitted(needed, f"an index of pool '{self.key.name}'"):
                built = await self._workers.build(lambda: build(contents))
            async with self._lock:
                if self._edits_during_build is edits:  # else the pool was read anew
                    self._contents = await self._after(built, edits)
        except Exception:
            self._index_failed_at = monotonic()
            raise
        finally:
            if self._edits_during_build is edits:
                self._edits_during_build = None
            self.set_progress(None)

    def set_progress(self, progress: float | None) -> None:
        """Set the share that is done of reading the pool or building its index."""
        self._progress = progress

    async def _read_new(self) -> None:
        try:
            async with self._replay.since(self.position) as (log, edits):
                if log.position == self.position:
                    self.log = log  # its settings may be new
                else:
                    await self._take_over(log, edits, anew=log.has == 0)
        except PoolNotReady:
            self._metrics.redis_losses.labels("pool").inc()
            if self.state != "ready":
                self.state = "damaged"
            raise

    def _admitted_upload(self, count: int) -> AbstractContextManager[Admission]:
        """Admit an upload of candidates, which are in memory already."""
        needed = self.contents.bytes_after([count]) if count else 0
        return self.memory.admitted(needed, f"an upload of {count} candidates")

    def _admitted_read(self, log: Log) -> AbstractContextManager[Admission]:
        """Admit the reading of a log by an estimate, which `Replay` corrects as it reads."""
        contents = self._contents if log.has else Contents.empty(self.encoder.dimension)
        counts = [entry.count for entry in log.entries]
        needed = 0
        if any(counts):
            needed = contents.bytes_after(counts) + sum(counts) * _SMALL_CANDIDATE
        if not log.has:
            needed += max(0, log.candidate_bytes - 2 * self.encoder.dimension * log.stored)
        return self.memory.admitted(needed, f"reading pool '{self.key.name}'")

    async def _take_over(self, log: Log, edits: Sequence[Edit], *, anew: bool) -> None:
        """Apply the edits that lead to the end of the log; if `anew`, to empty contents."""
        before = Contents.empty(self.encoder.dimension) if anew else self._contents
        contents = await self._after(before, edits)
        if anew and len(contents) > FROZEN:
            gc.freeze()  # they stay: a full collection, which stops every thread, skips them
        if anew:
            self._edits_during_build = None  # a build that began before is of other contents
        elif self._edits_during_build is not None:
            self._edits_during_build += edits
        if self.state != "ready":
            self.set_progress(None)
        self._contents, self.log, self.state = contents, log, "ready"
        self._report_size(len(contents), log.position.version)

    async def _after(self, contents: Contents, edits: Sequence[Edit]) -> Contents:
        def work() -> Contents:
            after = contents.after(edits, self._workers.flat) if edits else contents
            if after.base.index.kind == "ivf" and len(after) <= self._exact_limit:
                return after.merged(self._workers.flat)
            return after

        return await self._workers.edit(work)

    async def _committed(self, edit: Edit, entry: Entry) -> Edited:
        assert self.log  # noqa: S101 - it was just read
        position = Position(self.position.incarnation, self.position.version + 1, entry.stamp)
        log = replace(self.log, position=position, stored=self.log.stored + entry.count)
        await self._take_over(log, [edit], anew=False)
        return Edited(position.version, entry.count, 0, len(self.contents))

    def _totals(self, edit: Edit) -> tuple[int, int]:
        """Return the number and the bytes of the candidates after an edit."""
        contents = self.contents
        new = sum(candidate.id not in contents for candidate in edit.candidates)
        growth = contents.growth(edit.candidates, edit.removed)
        return len(contents) + new - len(edit.removed), contents.candidate_bytes + growth

    def _planned(self, plan: Plan) -> tuple[list[Candidate], list[str]]:
        contents = self.contents
        candidates, removed = plan(contents)
        new = sum(candidate.id not in contents for candidate in candidates)
        if new and (size := len(contents) + new - len(removed)) > self._max_size:
            raise PoolFull(
                f"pool '{self.key.name}' would have {size} candidates, more than the limit of "
                f"{self._max_size}; nothing was changed"
            )
        return candidates, removed

    async def _check_bytes(self, candidates: Sequence[Candidate], removed: Sequence[str]) -> None:
        if self._check_growth:
            contents = self.contents
            growth = await self._workers.edit(lambda: contents.growth(candidates, removed))
            await self._check_growth(self.key.namespace, growth)

    async def _encoded(
        self,
        candidates: Sequence[Candidate],
        vectors: dict[str, Float16],
        progress: Progress | None,
    ) -> Float16:
        contents = self.contents
        texts = [candidate.text for candidate in candidates]

        def look_up() -> None:
            vectors.update(contents.encoded({text for text in texts if text not in vectors}))

        await self._workers.edit(look_up)
        return await encode_unknown(self.encoder, self._workers, texts, vectors, progress)

    def _is_reading(self, progress: float) -> None:
        if self.state != "ready":
            self.set_progress(progress)

    def _is_encoding(self) -> None:
        if self.state != "ready":
            self.state = "encoding"


def _changed(contents: Contents, wanted: Sequence[Candidate]) -> list[Candidate]:
    return [candidate for candidate in wanted if contents.get(candidate.id) != candidate]


def _difference(before: Contents, after: Contents) -> Edit:
    """Return the edit that makes the later contents of the earlier ones."""
    changed = _changed(before, after.candidates())
    gone = [c.id for c in before.candidates() if c.id not in after]
    return Edit(changed, after.take([candidate.id for candidate in changed]), gone)
