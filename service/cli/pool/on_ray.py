"""Encodes the parts of a catalogue in parallel on a Ray cluster (https://docs.ray.io).

Ray Data is not used: its `map_batches` wants all candidates in its object store before the first
part is encoded, while an actor here gets a part whenever it is free.
"""

import os
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from turnwise.models.errors import TurnwiseError
from turnwise.service.cli.pool.part_writer import PartWriter
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.encoding import Progress
from turnwise.service.pools.files.parts import EncodedBy, Part, PartsFolder
from turnwise.service.settings import Settings

_TRIES = 3
"""How often Ray writes a part again whose process died: candidates may take too much memory."""


class RemoteWriter:
    """A `PartWriter` in a process of the cluster."""

    def __init__(self, actor: Any) -> None:  # noqa: ANN401 - Ray has no type for it
        self._actor = actor

    async def encoded_by(self) -> EncodedBy:
        """Return the model that encodes."""
        made: EncodedBy = await _result(self._actor.encoded_by.remote())
        return made

    async def write(
        self, encoded_by: EncodedBy, part: Part, candidates: Sequence[Candidate], _: Progress
    ) -> None:
        """Encode a part and write it; no progress is reported before its end."""
        await _result(self._actor.write.remote(encoded_by, part, candidates))


@contextmanager
def ray_writers(
    address: str, settings: Settings, folder: PartsFolder, most: int
) -> Iterator[list[RemoteWriter]]:
    """Yield a writer for each GPU of a cluster, or for each of its cores if it has no GPU.

    Args:
        address: The cluster's; `local` starts Ray on this machine, `auto` finds it here.
        settings: Name the model.
        folder: The folder of the parts, which all machines can reach.
        most: The number of writers that have work.

    Raises:
        TurnwiseError: Ray does not start, or there is no cluster at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports its use by default
    try:
        ray.init(address, include_dashboard=False, logging_level="ERROR")
    except Exception as error:
        raise TurnwiseError(f"Ray at '{address}': {error}") from None
    try:
        has = ray.cluster_resources()
        kind, needs = ("GPU", {"num_gpus": 1}) if has.get("GPU") else ("CPU", {"num_cpus": 1})
        options = {**needs, "max_restarts": -1, "max_task_retries": _TRIES}
        actors = ray.remote(**options)(PartWriter)
        count = min(int(has[kind]), most)
        yield [RemoteWriter(actors.remote(settings, folder)) for _ in range(count)]
    finally:
        ray.shutdown()


async def _result(reference: Awaitable[Any]) -> Any:  # noqa: ANN401 - of any method
    try:
        return await reference
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise TurnwiseError("Ray: " + str(error).partition("\n")[0]) from None
