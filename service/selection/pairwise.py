"""Pools that the pairwise model encodes: the vectors of their candidates and of contexts."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.roles import candidate_inputs
from turnwise.service.encoder.batcher import Priority
from turnwise.service.encoder.cache import CachedEncoder
from turnwise.service.errors import InvalidRequest

if TYPE_CHECKING:  # loads torch
    from turnwise.models.pairwise import PairwiseModel


class Pairwise:
    """Encodes candidates and contexts. Only the new utterances of a context miss the cache."""

    def __init__(self, model: "PairwiseModel", encoder: CachedEncoder, *, timeout: float) -> None:
        """Take a model and its encoder.

        Args:
            model: Projects the encoder's embeddings.
            encoder: The encoder of the model, behind a queue of its own.
            timeout: Seconds that the query of a turn may take.
        """
        self._model = model
        self._encoder = encoder
        self._timeout = timeout
        self.name = model.name
        self.fingerprint = model.fingerprint
        self.dimension = model.dimension

    async def query(self, context: Sequence[str]) -> Float32:
        """Return the vector (d,) of a context of at least one utterance, the newest last."""
        recent = candidate_inputs(context[-self._model.context_length :])
        embeddings = await self._encoder.encode(recent, Priority.TURN, self._timeout)
        return self._model.project_context(embeddings)

    async def candidates(self, texts: Sequence[str]) -> Float32:
        """Encode texts as responses, (n, d) unit rows."""
        embeddings = await self._encoder.encode(candidate_inputs(texts), Priority.BULK)
        return await asyncio.to_thread(self._model.project_responses, embeddings)

    async def examples(self, texts: Sequence[str]) -> Float32:  # noqa: ARG002
        """Reject them: the model compares a candidate with a whole context."""
        raise InvalidRequest.field(
            "a pool with the encoder 'pairwise' takes no examples: its model compares a candidate "
            "with a whole context, not with one utterance",
            "examples",
        )

    async def queries(self, contexts: Sequence[Sequence[str]]) -> Float32:
        """Return the vectors (m, d) of m contexts of as many utterances each."""
        inputs = candidate_inputs(text for context in contexts for text in context)
        embeddings = await self._encoder.encode(inputs, Priority.BULK)
        parts = embeddings.reshape(len(contexts), -1, embeddings.shape[1])
        project = self._model.project_context
        return await asyncio.to_thread(lambda: np.stack([project(part) for part in parts]))
