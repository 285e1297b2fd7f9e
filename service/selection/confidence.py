"""Computes the confidence of an answer; a re-ranked order has none."""

import logging
from collections.abc import Sequence

import numpy as np

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Calibration, features, rescaled
from turnwise.models.example_confidence import ExampleCalibration
from turnwise.models.groups import next_answer
from turnwise.models.scores import Aggregation
from turnwise.service.pools import Filter, Hit, PoolView
from turnwise.service.selection.answers import name_answer
from turnwise.service.wire.fields import RerankerName

MIN_ANSWERS = 2
"""Answers that a search should find: the confidence depends on how far apart they score."""

_log = logging.getLogger("turnwise")


class Confidence:
    """Computes confidences by the model's calibration, corrected by the pool's if it has one.

    The model's calibration holds for the aggregation of its card alone. Where examples took part in
    the search, a second one corrects it.
    """

    def __init__(
        self,
        calibration: Calibration | None,
        with_examples: ExampleCalibration | None,
        aggregation: Aggregation,
    ) -> None:
        """Take the calibrations and the aggregation of the model's card."""
        self._calibration = calibration
        self._with_examples = with_examples
        self._aggregation = aggregation
        self._warned: set[str] = set()

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

    def warn(self, view: PoolView, obstacle: str) -> str | None:
        """Return a warning if an obstacle keeps the pool's least confidence from having an effect.

        The log gets each warning once.
        """
        if not view.settings.min_confidence:
            return None
        warning = f"the min_confidence of pool '{view.name}' has no effect: {obstacle}"
        if warning not in self._warned:
            self._warned.add(warning)
            _log.warning("there is no confidence, so no turn abstains: %s", warning)
        return warning

    async def compute(
        self,
        view: PoolView,
        query: Float32,
        hits: Sequence[Hit],
        where: Filter | None,
        *,
        utterances: int,
        example: float | None = None,
    ) -> float | None:
        """Return the confidence in the first hit; None if there is no second hit.

        Args:
            view: The pool that was searched.
            query: (d,) the running query.
            hits: The hits that may be offered, best first.
            where: The filter of the search.
            utterances: Number of utterances of the context.
            example: The example score of the first hit, `NO_EXAMPLE` if it has no examples; None
                where examples took no part in the search.
        """
        if self._calibration is None or len(hits) < MIN_ANSWERS:
            return None
        first = hits[0]
        rival = next_answer([name_answer(hit.candidate) for hit in hits])
        second = hits[-1] if rival is None else hits[rival]
        spread = await view.spread(query, where)
        norm = float(np.linalg.norm(query))
        confidence = self._calibration.confidence(
            features(first.score, second.score, spread, norm, utterances)
        )
        if example is not None and self._with_examples:
            confidence = self._with_examples.confidence(confidence, example)
        if correction := view.settings.calibration:
            confidence = rescaled(confidence, correction.slope, correction.offset)
        return float(confidence)
