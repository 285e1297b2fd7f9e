"""Computes the confidence of an answer; a re-ranked order has none."""

from collections.abc import Sequence

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Calibration, features, rescaled
from turnwise.models.scores import Aggregation
from turnwise.service.pools import Filter, Hit, PoolView
from turnwise.service.wire.fields import RerankerName

MIN_TEXTS = 2
"""Different texts that a search should find: the confidence depends on how far apart they score."""


class Confidence:
    """Computes confidences by the calibration of the model, and by that of the pool if it has one.

    The model's calibration holds for the aggregation of its card alone.
    """

    def __init__(self, calibration: Calibration | None, aggregation: Aggregation) -> None:
        """Take the calibration and the aggregation of the model's card."""
        self._calibration = calibration
        self._aggregation = aggregation

    def find_obstacle(
        self, view: PoolView, aggregation: Aggregation, rerank: RerankerName | None
    ) -> str | None:
        """Return why an order of candidates has no confidence; None if it has one."""
        if rerank:
            return f"the re-ranker '{rerank}' orders the candidates"
        if view.encoder_name != "default":
            return f"another model encodes pool '{view.name}'"
        if self._calibration is None:
            return "the model's card has no calibration"
        card = self._aggregation
        if (aggregation.name, aggregation.summed) != (card.name, card.summed):
            return f"the model's calibration is for its own aggregation, '{card.name}'"
        return None

    async def compute(
        self,
        view: PoolView,
        query: Float32,
        hits: Sequence[Hit],
        where: Filter | None,
        utterances: int,
    ) -> float | None:
        """Return the confidence in the first hit; None if there is no second hit.

        Args:
            view: The pool that was searched.
            query: (d,) the running query.
            hits: The hits that may be offered, best first.
            where: The filter of the search.
            utterances: Number of utterances of the context.
        """
        if self._calibration is None or len(hits) < MIN_TEXTS:
            return None
        first = hits[0]
        others = (hit for hit in hits if hit.candidate.text != first.candidate.text)
        second = next(others, hits[-1])
        spread = await view.spread(query, where)
        norm = float(np.linalg.norm(query))
        confidence = self._calibration.confidence(
            features(first.score, second.score, spread, norm, utterances)
        )
        if correction := view.settings.calibration:
            confidence = rescaled(confidence, correction.slope, correction.offset)
        return float(confidence)
