"""The candidates of a ranking with all parts of their scores, and as values of the wire."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise.models.arrays import Float32, Float64
from turnwise.service.pools.slots import fill_slots
from turnwise.service.selection.pipeline import as_matched
from turnwise.service.selection.scores import Candidates, NextUtteranceScores
from turnwise.service.wire.ranking import Ranked, RankRequest, Rejected


@dataclass(frozen=True, slots=True)
class Judged:
    """C candidates with the parts of their scores.

    Attributes:
        request: The request, with G goals and A utterances to avoid.
        candidates: The candidates.
        fit: Their next-utterance scores, if the answer depends on them.
        goals: (C, G) reachability of each goal.
        avoid: (C, A) reachability of each utterance to avoid.
        is_over: (C, A) whether the reachability of an utterance to avoid reaches its threshold.
        scores: (C,) the scores by which the candidates are ranked.
        slots: The values for slots of the candidates of a pool.
    """

    request: RankRequest
    candidates: Candidates
    fit: NextUtteranceScores | None
    goals: Float32
    avoid: Float32
    is_over: NDArray[np.bool_]
    scores: Float64
    slots: Mapping[str, str]

    @property
    def kept(self) -> list[int]:
        """The indices of the candidates that are not rejected."""
        kept: list[int] = np.flatnonzero(~self.is_over.any(axis=1)).tolist()
        return kept

    def list_ranked(self, indices: list[int]) -> list[Ranked]:
        """Return the candidates at these indices as values of the wire."""
        return [self._as_ranked(index) for index in indices]

    def _as_ranked(self, index: int) -> Ranked:
        candidates = self.candidates
        fit = None
        contributions = None
        if self.fit is not None:
            fit = float(self.fit.scores[index])
            if self.fit.contributions is not None:
                contributions = self.fit.contributions[index].tolist()
        ranked = Ranked.model_construct(
            index=index,
            id=candidates.ids[index],
            text=candidates.texts[index],
            score=float(self.scores[index]),
            fit=fit,
            goals=self.goals[index].tolist(),
            contributions=contributions,
        )
        if candidates.hits is None:
            return ranked
        hit = candidates.hits[index]
        text = self._fill_slots(index)
        pool_fields = {
            "text": text,
            "template": hit.candidate.text if text != hit.candidate.text else None,
            "metadata": hit.candidate.metadata,
            "group": hit.candidate.group,
            "body": hit.candidate.body,
            "matched": as_matched(hit),
        }
        return ranked.model_copy(update=pool_fields)

    def list_rejected(self) -> list[Rejected]:
        """Return the candidates that lead to an utterance to avoid, with the first of these."""
        return [
            self._as_rejected(index, int(self.is_over[index].argmax()))
            for index in np.flatnonzero(self.is_over.any(axis=1)).tolist()
        ]

    def _as_rejected(self, index: int, avoided: int) -> Rejected:
        reachability = float(self.avoid[index, avoided])
        threshold = self.request.avoid[avoided].threshold
        return Rejected.model_construct(
            index=index,
            id=self.candidates.ids[index],
            text=self._fill_slots(index),
            reason=f"reachability {reachability:.3f} of avoid.{avoided} is not below {threshold:g}",
            avoid=avoided,
            reachability=reachability,
        )

    def _fill_slots(self, index: int) -> str:
        """Return the text of a candidate; the slots in texts of a pool are filled."""
        text = self.candidates.texts[index]
        return text if self.candidates.hits is None else fill_slots(text, self.slots)
