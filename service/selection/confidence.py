"""Computes the confidence of an answer. There is none where a request names a re-ranker."""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.confidence import Calibration, Spread, features, rescale
from turnwise.models.example_confidence import ExampleCalibration
from turnwise.models.groups import next_answer
from turnwise.models.rerankers.cascade import RerankedCalibration, reranked_features
from turnwise.models.roles import Role, RoleText
from turnwise.models.scores import Aggregation
from turnwise.service.pools import Hit, PoolView
from turnwise.service.selection.answers import name_answer
from turnwise.service.selection.context import EncodedContext
from turnwise.service.selection.request import SelectionRequest
from turnwise.service.wire.fields import RerankerName

MIN_ANSWERS = 2
"""Answers that a search should find: the confidence depends on how far apart they score."""

_log = logging.getLogger("turnwise")


class Estimate(NamedTuple):
    """The confidence of the first stage, and what it was computed from.

    Attributes:
        confidence: The confidence in the first hit, without the correction of the pool.
        spread: The scores of all candidates.
    """

    confidence: float
    spread: Spread


class Confidence:
    """Computes confidences by the model's calibration, corrected by the pool's if it has one.

    The model's calibration holds only for the aggregation in its card. A second calibration
    corrects the confidence of searches by examples.
    """

    def __init__(
        self,
        calibration: Calibration | None,
        with_examples: ExampleCalibration | None,
        aggregation: Aggregation,
        knows_script: Callable[[RoleText], bool],
    ) -> None:
        """Take the calibrations and the aggregation of the model's card.

        Args:
            calibration: The calibration of the confidences.
            with_examples: The calibration that corrects them in pools with examples.
            aggregation: The aggregation that they are for.
            knows_script: Returns whether the model's vocabulary knows the script of a text.
        """
        self._knows_script = knows_script
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

    def knows_script(self, context: EncodedContext) -> bool:
        """Return whether the model's vocabulary knows the script of the newest utterance."""
        return self._knows_script(RoleText(context.texts[-1], Role.SAID))

    def warn(self, view: PoolView, obstacle: str) -> list[str]:
        """Return a warning if the pool's `min_confidence` has no effect because of an obstacle.

        The log gets each warning once.
        """
        if not view.settings.min_confidence:
            return []
        warning = f"the min_confidence of pool '{view.name}' has no effect: {obstacle}"
        if warning not in self._warned:
            self._warned.add(warning)
            _log.warning("there is no confidence, so no turn abstains: %s", warning)
        return [warning]

    def estimate(
        self,
        request: SelectionRequest,
        query: Float32,
        spread: Spread,
        hits: Sequence[Hit],
        *,
        example: float | None = None,
    ) -> Estimate | None:
        """Return the confidence in the first hit; None without a calibration.

        Args:
            request: The request of the search.
            query: (d,) the running query.
            spread: The reply scores of all candidates.
            hits: The hits that may be offered, best first, at least `MIN_ANSWERS`.
            example: The example score of the first hit, `NO_EXAMPLE` if it has no examples; None
                where examples took no part in the search.
        """
        if self._calibration is None:
            return None
        first = hits[0]
        second = hits[_find_rival(hits)]
        norm = float(np.linalg.norm(query))
        confidence = self._calibration.confidence(
            features(first.score, second.score, spread, norm, request.utterance_count)
        )
        if example is not None and self._with_examples:
            confidence = self._with_examples.confidence(
                confidence, example, spread.candidates, request.utterance_count
            )
        return Estimate(float(confidence), spread)

    def estimate_reranked(
        self,
        first_stage: Estimate,
        calibration: RerankedCalibration,
        hits: Sequence[Hit],
        logits: Float32,
        combined: Float64,
    ) -> float:
        """Return the confidence in the hit with the best combined score.

        Args:
            first_stage: The estimate of the first stage.
            calibration: The calibration of the re-ranker.
            hits: n ≥ 2 hits, in the order of the first stage.
            logits: (k,) the logits of the first k ≤ n hits, by the re-ranker.
            combined: (n,) the combined scores of the hits.
        """
        order = np.argsort(-combined, kind="stable")
        first = order[0]
        second = order[_find_rival([hits[index] for index in order])]
        margin = float(combined[first] - combined[second])
        reranked = reranked_features(
            first_stage.confidence, float(logits[first]), margin, first == 0
        )
        return float(calibration.confidence(reranked))

    def correct(self, view: PoolView, confidence: float) -> float:
        """Return a confidence with the correction of the pool, if it has one."""
        if correction := view.settings.calibration:
            return float(rescale(confidence, correction.slope, correction.offset))
        return confidence


def _find_rival(hits: Sequence[Hit]) -> int:
    """Return the index of the first hit whose answer differs from that of hit 0.

    If all hits are wordings of one answer, it is the index of the last one.
    """
    rival = next_answer([name_answer(hit.candidate) for hit in hits])
    return len(hits) - 1 if rival is None else rival
