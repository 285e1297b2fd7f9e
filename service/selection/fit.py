"""How well candidates fit a history: their next-utterance scores, and what these are made of."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.scores import Aggregation
from turnwise.service.selection.context import Histories, History


@dataclass(frozen=True, slots=True)
class Fit:
    """Next-utterance scores (C,) and, where they are explained, contributions (C, n)."""

    scores: Float32
    parts: Float32 | None = None


async def encoder_fit(
    histories: Histories,
    history: History,
    speakers: Sequence[str],
    after: Float32,
    aggregation: Aggregation,
    *,
    explain: bool,
) -> Fit:
    """Score candidates by C3L eq. 3, by MaxSim, or as CCL does where there are no pairs.

    Args:
        histories: Encode the history toward each speaker.
        history: Of n ≥ 1 utterances.
        speakers: Who would say each of the C candidates.
        after: (C, d) their vectors.
        aggregation: How the context folds up.
        explain: Whether contributions are wanted.
    """
    scores = np.empty(len(after), np.float32)
    parts = np.empty((len(after), len(history.utterances)), np.float32)
    for speaker in dict.fromkeys(speakers):
        said = [place for place, name in enumerate(speakers) if name == speaker]
        first, second = await histories.encode(history, speaker)
        scores[said] = await asyncio.to_thread(aggregation.scores, first, second, after[said])
        if explain:
            part = await asyncio.to_thread(aggregation.contributions, first, second, after[said])
            parts[said] = part.T
    return Fit(scores, parts if explain else None)
