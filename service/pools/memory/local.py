"""`LocalPool`: a pool in memory, its limits, its log in Redis, its move into a candidate store."""

import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import NamedTuple

from turnwise.models.texts import write_count
from turnwise.service.errors import PoolFull, PoolNotReady
from turnwise.service.pools.candidate import Candidate, keep_learned, list_examples, select_changed
from turnwise.service.pools.encoding import EncodingProgress, KnownVectors, encode_new
from turnwise.service.pools.memory.contents import Contents
from turnwise.service.pools.memory.edits import Edit
from turnwise.service.pools.memory.examples import Examples, Size
from turnwise.service.pools.memory.free_memory import Admission
from turnwise.service.pools.memory.local_view import LocalView
from turnwise.service.pools.memory.packed import MANY, PackedCandidates
from turnwise.service.pools.memory.replacing import Replacement
from turnwise.service.pools.memory.upkeep import build_index, fold, log_is_long, needs_index
from turnwise.service.pools.memory.workers import Work
from turnwise.service.pools.pool import Backend, MakeBatches, Pool, Revise
from turnwise.service.pools.redis.replay import ChunkGone, Replay
from turnwise.service.pools.redis.values import (
    NOWHERE,
    Entry,
    Log,
    Outcome,
    PoolKey,
    Position,
    Revision,
)
from turnwise.service.pools.resources import PoolResources
from turnwise.service.pools.stores import CandidateStore
from turnwise.service.pools.stores.new_collection import drop_unused, fill_collection
from turnwise.service.pools.stores.rows import remove, write
from turnwise.service.pools.view import CandidateBatch
from turnwise.service.wire.pools import Edited, PoolInfo, PoolSettings, Removed


class Plan(NamedTuple):
    """The candidates that an edit adds or replaces, and the ids that it removes."""

    candidates: Sequence[Candidate]
    removed: Sequence[str]


MakePlan = Callable[[Contents], Plan]
"""Returns what an edit changes in the current contents."""


class StagedEdit(NamedTuple):
    """An edit whose chunks are in Redis, and the entry that commits them."""

    edit: Edit
    entry: Entry

    def follows(self, plan: Plan) -> bool:
        """Return whether the edit changes what a plan says."""
        return Plan(self.edit.candidates, self.edit.removed) == plan


_SMALL_CANDIDATE = Candidate("", "").memory
_PACKED_CANDIDATE = PackedCandidates([Candidate("", "")]).memory
_INDEX_RETRY_SECONDS = 600.0

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
        self, key: PoolKey, backend: Backend, newest: Revision, resources: PoolResources
    ) -> None:
        super().__init__(key, backend, newest, resources)
        self.memory = resources.memory
        self.exact_limit = resources.limits.exact
        """Number of candidates up to which search is exact."""
        self._replay = Replay(
            key=key,
            records=self.records,
            encoder=self.encoder,
            workers=self._workers,
            admit=self._admit_read,
            on_encoding=self._begin_encoding,
            on_progress=self._report_reading,
        )
        self._contents = Contents.empty(self.encoder.dimension)
        self.log: Log | None = None
        """The log that made the contents; None before the first read."""
        self._progress: float | None = None
        """Progress of reading the pool or building its index, 0 to 1; None if neither runs."""
        self._edits_during_build: list[Edit] | None = None
        """Edits since the build of an index began; None if none is being built."""
        self._index_failed_at = -math.inf

    @property
    def may_be_indexed(self) -> bool:
        """False for a while after a failed build: a build takes minutes and may fail again."""
        return monotonic() - self._index_failed_at > _INDEX_RETRY_SECONDS

    @property
    def is_awaited(self) -> bool:
        """Whether it is being read or encoded, or needs an index."""
        return super().is_awaited or (self.state == "ready" and needs_index(self))

    @property
    def position(self) -> Position:
        """The version of the contents."""
        return self.log.position if self.log else NOWHERE

    @property
    def revision(self) -> Revision | None:
        """The revision of the version that is here; None before the first read."""
        if self.log is None:
            return None
        return Revision(self.position.stamp, self.log.settings, self.encoder_name, "local")

    @property
    def contents(self) -> Contents:
        """The contents at `position`.

        Raises:
            PoolNotReady: The pool has not been read yet.
        """
        self._check_ready()
        return self._contents

    def _check_ready(self) -> None:
        if self.state != "ready":
            raise PoolNotReady(f"pool '{self.key.name}' is {_NOT_READY[self.state]}")

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
        contents = self._contents
        base = contents.base
        recalls = [index.recall for index in base.indexes if index.recall is not None]
        return PoolInfo(
            name=self.key.name,
            version=self.position.version,
            size=len(contents),
            index="flat" if base.is_exact else "ivf",
            exact=not recalls,
            recall_at_10=min(recalls, default=None),
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

    def due_upkeep(self) -> Iterator[tuple[str, Work]]:
        """Yield the fold of a long log, and the build of a missing or outdated index."""
        if self.state != "ready":
            return
        if log_is_long(self):
            yield "fold", partial(fold, self, self._workers)
        if needs_index(self):
            yield "index", partial(build_index, self, self._workers, self._resources.files)

    async def upsert(
        self, candidates: Sequence[Candidate], progress: EncodingProgress | None = None
    ) -> Edited:
        """Add or replace candidates in one version, or change nothing."""

        def plan(contents: Contents) -> Plan:
            return Plan(select_changed(contents.get, keep_learned(contents.get, candidates)), [])

        edited = await self._edit(plan, progress)
        return replace(edited, unchanged=len(candidates) - edited.upserted)

    async def revise(self, revise: Revise, ids: Sequence[str] | None = None) -> Edited:
        """Replace candidates by what a function makes of them, in one version."""

        def plan(contents: Contents) -> Plan:
            found = contents.candidates() if ids is None else map(contents.get, ids)
            revised = [revise(candidate) for candidate in found if candidate]
            return Plan(select_changed(contents.get, revised), [])

        return await self._edit(plan)

    async def remove(self, ids: Iterable[str]) -> Removed:
        """Remove candidates in one version, or change nothing."""
        wanted = list(dict.fromkeys(ids))
        removed: list[str] = []

        def plan(contents: Contents) -> Plan:
            nonlocal removed
            removed = [id for id in wanted if id in contents]
            return Plan([], removed)

        edited = await self._edit(plan)
        return Removed(edited.version, len(removed), len(wanted) - len(removed), edited.size)

    async def replace(self, batches: MakeBatches) -> Edited:
        """Replace all candidates in one version, or none, without holding either version here."""
        edited = None
        gone = ""
        while edited is None:
            log = await self._replay.read_log(gone=gone)
            try:
                edited = await self._replace_once(log, batches)
            except ChunkGone as error:
                gone = str(error)
        return edited

    async def _replace_once(self, log: Log, batches: MakeBatches) -> Edited | None:
        """Replace all candidates; return None if the pool was edited since its log was read."""
        replacement = Replacement(self._replay, log, self._resources.limits.size)
        entry = await self.records.stage_parts(self.key, replacement.parts(batches))
        size = replacement.size
        version = log.position.version
        if entry.count or entry.removed:
            totals = (size, replacement.bytes)
            async with self._admit_growth(lambda: replacement.bytes - log.candidate_bytes) as until:
                outcome = await self.records.commit(self.key, log.position, entry, totals, until)
            if outcome != "ok":
                await self.records.discard(self.key, entry.chunks)
                return None
            await self._resources.count_change()
            version += 1
        if self.state == "ready":
            await self.refresh()
        return Edited(version, entry.count, size - entry.count, size)

    async def _edit(self, make_plan: MakePlan, progress: EncodingProgress | None = None) -> Edited:
        """Make a plan and apply it in one new version.

        Encoding takes long, so it runs without the lock, and its result is staged in Redis, where
        no reader sees it. If another edit was committed meanwhile, the plan is made again.
        """
        self._check_ready()  # an edit does not wait until the pool is read
        known = KnownVectors()
        while True:
            plan = await self._plan(make_plan)
            if not (plan.candidates or plan.removed):
                return Edited(self.position.version, 0, 0, len(self.contents))
            with self._admit_upload(plan.candidates):
                edit = await self._encode(plan, known, progress)
                staged = StagedEdit(edit, await self.records.stage(self.key, edit))
                edited = await self._commit(staged, make_plan)
                if edited:
                    return edited
                await self.records.discard(self.key, staged.entry.chunks)

    async def _plan(self, make_plan: MakePlan) -> Plan:
        """Return what an edit changes in the newest contents, if the limits admit it."""
        async with self._lock:
            plan = await self._plan_newest(make_plan)
            async with self._admit_growth(partial(self.contents.growth, *plan)):
                return plan

    async def _commit(self, staged: StagedEdit, make_plan: MakePlan) -> Edited | None:
        """Commit a staged edit; return None if the plan is another one now, or time ran out."""
        async with self._lock:
            outcome: Outcome = "conflict"
            while outcome == "conflict":  # another replica may have committed first
                plan = await self._plan_newest(make_plan)
                if not staged.follows(plan):
                    return None
                totals = await self._workers.edit(partial(self._count_totals, staged.edit))
                async with self._admit_growth(partial(self.contents.growth, *plan)) as until:
                    outcome = await self.records.commit(
                        self.key, self.position, staged.entry, totals, until
                    )
            return await self._take_over_commit(staged) if outcome == "ok" else None

    async def _plan_newest(self, make_plan: MakePlan) -> Plan:
        """Read what is new in Redis, and return what an edit changes; the caller has the lock."""
        await self._catch_up()
        return await self._workers.edit(partial(self._plan_within_limit, make_plan))

    async def move_to(self, engine: CandidateStore) -> None:
        """Copy the candidates into a candidate store, and point the pool at the copy.

        Candidates that are edited meanwhile are copied again. If the copy fails, nothing is
        changed.

        Raises:
            StoreUnavailable: The engine does not answer.
            PoolMoved: Another replica moved the pool first.
        """
        await self.refresh()
        position = self.position
        contents = self.contents
        log = await self.records.read(self.key)
        filled = await fill_collection(self.key, engine, self.encoder, self.view().scan())
        move = partial(self.records.move, self.key, store=engine.name, collection=filled)
        try:
            while not await move(position, log, size=len(contents)):
                await self.refresh()
                before = contents
                contents = self.contents
                position = self.position
                log = await self.records.read(self.key)
                edit = await self._workers.edit(partial(_find_difference, before, contents))
                touched = [*edit.removed, *(candidate.id for candidate in edit.candidates)]
                await remove(engine, filled.name, [c for c in map(before.get, touched) if c])
                changed = CandidateBatch.of(edit.candidates, edit.vectors, edit.examples)
                await write(engine, filled.name, changed)
        except BaseException:
            await drop_unused(self.records, self.key, engine, filled.name)
            raise
        await self._resources.count_change()

    async def replace_index(self, build: Callable[[Contents], Contents], needed: int) -> None:
        """Build another index of the same candidates, while edits and searches go on.

        If the build fails, usually for lack of memory, the pool keeps its index.

        Args:
            build: Builds it, in a thread.
            needed: Bytes of memory that it takes at most.

        Raises:
            NotEnoughMemory: Less is free.
        """
        contents = self.contents
        edits: list[Edit] = []
        self._edits_during_build = edits
        try:
            with self.memory.admitted(needed, f"an index of pool '{self.key.name}'"):
                built = await self._workers.build(lambda: build(contents))
            async with self._lock:
                if self._edits_during_build is edits:  # else the pool was read again
                    self._contents = await self._apply_edits(built, edits)
        except Exception:
            self._index_failed_at = monotonic()
            raise
        finally:
            if self._edits_during_build is edits:
                self._edits_during_build = None
            self.set_progress(None)

    def set_progress(self, progress: float | None) -> None:
        """Set the progress, 0 to 1, of reading the pool or building its index."""
        self._progress = progress

    async def _read_new(self) -> None:
        try:
            async with self._replay.read_since(self.position) as (log, edits):
                if log.position == self.position:
                    self.log = log  # its settings may be new
                else:
                    await self._take_over(log, edits, from_empty=log.has == 0)
        except PoolNotReady:
            self._metrics.redis_losses.labels("pool").inc()
            if self.state != "ready":
                self.state = "damaged"
            raise

    def _admit_upload(self, candidates: Sequence[Candidate]) -> AbstractContextManager[Admission]:
        """Admit an upload of candidates, which are in memory already."""
        count = len(candidates)
        size = Size(count, sum(candidate.example_count for candidate in candidates))
        needed = self.contents.edit_bytes([size]) if count else 0
        return self.memory.admitted(needed, f"an upload of {write_count(count, 'candidate')}")

    def _admit_read(self, log: Log) -> AbstractContextManager[Admission]:
        """Admit the reading of a log by an estimate, which `Replay` corrects as it reads."""
        contents = self._contents if log.has else Contents.empty(self.encoder.dimension)
        sizes = [Size(entry.count, entry.examples) for entry in log.entries]
        candidates = sum(size.candidates for size in sizes)
        needed = 0
        if candidates:
            small = _PACKED_CANDIDATE if candidates >= MANY else _SMALL_CANDIDATE
            needed = contents.edit_bytes(sizes) + candidates * small
        if not log.has:
            vectors = log.stored + sum(size.examples for size in sizes)
            needed += max(0, log.candidate_bytes - 2 * self.encoder.dimension * vectors)
        return self.memory.admitted(needed, f"reading pool '{self.key.name}'")

    async def _take_over(self, log: Log, edits: Sequence[Edit], *, from_empty: bool) -> None:
        """Apply the edits up to the end of the log; if `from_empty`, to empty contents."""
        before = Contents.empty(self.encoder.dimension) if from_empty else self._contents
        contents = await self._apply_edits(before, edits)
        if from_empty:
            self._edits_during_build = None  # a build that began before indexes other contents
        elif self._edits_during_build is not None:
            self._edits_during_build += edits
        if self.state != "ready":
            self.set_progress(None)
        self._contents = contents
        self.log = log
        self.state = "ready"
        self._report_size(len(contents), log.position.version)

    async def _apply_edits(self, contents: Contents, edits: Sequence[Edit]) -> Contents:
        def work() -> Contents:
            after = contents.after(edits, self._workers.flat) if edits else contents
            largest = max(len(after), after.example_count)
            if not after.base.is_exact and largest <= self.exact_limit:
                return after.merge(self._workers.flat)
            return after

        return await self._workers.edit(work)

    async def _take_over_commit(self, committed: StagedEdit) -> Edited:
        """Apply an edit that was just committed, and let other replicas see it."""
        assert self.log  # it was just read
        edit, entry = committed
        position = Position(self.position.incarnation, self.position.version + 1, entry.stamp)
        log = replace(self.log, position=position, stored=self.log.stored + entry.count)
        try:
            await self._take_over(log, [edit], from_empty=False)
        finally:  # the edit counts, even if its request is cancelled
            await self._resources.count_change()
        return Edited(position.version, entry.count, 0, len(self.contents))

    def _count_totals(self, edit: Edit) -> tuple[int, int]:
        """Return the number and the bytes of the candidates after an edit."""
        contents = self.contents
        growth = contents.growth(edit.candidates, edit.removed)
        size = contents.size_after(edit.candidates, edit.removed)
        return size, contents.candidate_bytes + growth

    def _plan_within_limit(self, make_plan: MakePlan) -> Plan:
        """Return what an edit changes now.

        Raises:
            PoolFull: The edit would make the pool larger than its limit.
        """
        contents = self.contents
        plan = make_plan(contents)
        size = contents.size_after(*plan)
        limit = self._resources.limits.size
        if size > max(len(contents), limit):
            raise PoolFull(
                f"pool '{self.key.name}' would have {write_count(size, 'candidate')}, more than "
                f"the limit of {limit}; nothing was changed"
            )
        return plan

    @asynccontextmanager
    async def _admit_growth(self, count_growth: Callable[[], int]) -> AsyncIterator[float | None]:
        """Admit the bytes that an edit adds to the namespace, while the block commits it.

        Yields the time until which the block may commit; None without a limit.
        """
        admit_growth = self._resources.admit_growth
        if admit_growth is None:
            yield None
            return
        growth = await self._workers.edit(count_growth)
        async with admit_growth(self.key.namespace, growth) as until:
            yield until

    async def _encode(
        self, plan: Plan, known: KnownVectors, progress: EncodingProgress | None
    ) -> Edit:
        """Return a planned edit with its vectors; those of texts in the pool are not encoded."""
        contents = self.contents
        candidates = plan.candidates

        def look_up() -> None:
            unknown = {each.text for each in candidates} - known.candidates.keys()
            known.candidates.update(contents.find_vectors(unknown))
            unknown = {*list_examples(candidates)} - known.examples.keys()
            known.examples.update(contents.find_example_vectors(unknown))

        await self._workers.edit(look_up)
        batch = await encode_new(self.encoder, self._workers, candidates, known, progress)
        examples = await self._workers.edit(lambda: Examples.of(candidates, batch.examples))
        return Edit(candidates, batch.vectors, plan.removed, examples)

    def _report_reading(self, progress: float) -> None:
        if self.state != "ready":
            self.set_progress(progress)

    def _begin_encoding(self) -> None:
        if self.state != "ready":
            self.state = "encoding"


def _find_difference(before: Contents, after: Contents) -> Edit:
    """Return the edit that turns the earlier contents into the later ones."""
    changed = select_changed(before.get, after.candidates())
    removed = [c.id for c in before.candidates() if c.id not in after]
    ids = [candidate.id for candidate in changed]
    return Edit(changed, after.take(ids), removed, after.take_examples(ids))
