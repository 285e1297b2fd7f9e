"""Encodes the parts of a catalogue and writes them as files."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

from turnwise.service.app.components import main_encoder, start_queue
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.observe.metrics import Metrics
from turnwise.service.pools import RunningQueries
from turnwise.service.pools.candidate import Candidate
from turnwise.service.pools.encoding import Progress, encode_candidates
from turnwise.service.pools.files.parts import EncodedBy, Part, PartsError, PartsFolder
from turnwise.service.settings import Settings


class PartWriter:
    """Encodes and writes parts, with an encoder that starts when it is first needed.

    So it can be sent to another process, and start there again if that process dies.
    """

    def __init__(self, settings: Settings, folder: PartsFolder) -> None:
        self._settings, self._folder = settings, folder
        self._stack = AsyncExitStack()
        self._started: tuple[RunningQueries, EncodedBy] | None = None

    async def encoded_by(self) -> EncodedBy:
        """Return the model that encodes."""
        return (await self._running())[1]

    async def write(
        self,
        encoded_by: EncodedBy,
        part: Part,
        candidates: Sequence[Candidate],
        progress: Progress | None = None,
    ) -> None:
        """Encode a part and write it, whole or not at all.

        Args:
            encoded_by: The model of the manifest.
            part: The part.
            candidates: Its n candidates.
            progress: Called with (candidates encoded, n).

        Raises:
            PartsError: This process has another model.
            ServiceError: The encoder failed.
        """
        encoder, ours = await self._running()
        if ours != encoded_by:
            raise PartsError(f"model '{ours.model}' is not the same on all machines")
        texts = [candidate.text for candidate in candidates]
        vectors = await encode_candidates(encoder, texts, progress)
        self._folder.write(encoded_by, part, candidates, vectors)

    async def close(self) -> None:
        """Stop the encoder."""
        await self._stack.aclose()

    async def _running(self) -> tuple[RunningQueries, EncodedBy]:
        if not self._started:
            metrics = Metrics()
            encoder = await main_encoder(self._settings, metrics, self._stack)
            queue = await start_queue(self._settings, encoder, metrics, self._stack)
            cached = CachedEncoder(queue, encoder, metrics, size=0)
            self._started = RunningQueries(cached), EncodedBy.of(encoder)
        return self._started
