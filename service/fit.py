"""How well candidates fit a history: their next-utterance scores, and what these are made of."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.encoder import Aggregation
from models.mixture import contributions, max_sim, max_sim_contributions, running_query
from service.history import Histories, History, new_rows

Float32 = NDArray[np.float32]


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
        scores[said] = await asyncio.to_thread(_scores, first, second, after[said], aggregation)
        if explain:
            parts[said] = await asyncio.to_thread(_parts, first, second, after[said], aggregation)
    return Fit(scores, parts if explain else None)


def running_query_of(first: Float32, second: Float32, aggregation: Aggregation) -> Float32:
    """Return the running query (d,) that the aggregation, or the retrieval for MaxSim, sums."""
    n, summed = len(second), aggregation.summed
    place = 0 if summed is None else max(0, n - summed - 1)
    return running_query(new_rows(first, second[place:], place), summed, paired=len(first) > 0)


def _scores(first: Float32, second: Float32, after: Float32, aggregation: Aggregation) -> Float32:
    if aggregation.name == "max_sim":
        return max_sim(first, second, after)
    return np.asarray(after @ running_query_of(first, second, aggregation))


def _parts(first: Float32, second: Float32, after: Float32, aggregation: Aggregation) -> Float32:
    """Return what each utterance contributes (C, n) to each score of `_scores`."""
    if aggregation.name == "max_sim":
        return max_sim_contributions(first, second, after).T
    return contributions(first, second, after, aggregation.summed).T
