"""Candidates that are one answer: those of a group, and those with the same text."""

from collections.abc import Mapping, Sequence

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.groups import best_wordings
from turnwise.models.texts import fold_text
from turnwise.service.pools import Candidate, Hit

NEAR_EQUAL = 0.05
"""Share of the best score. Of two wordings whose scores differ by less, the one that was said
longer ago comes first."""


def name_answer(candidate: Candidate) -> str:
    """Return a name that all wordings of an answer share, and no other candidate has."""
    if candidate.group is not None:
        return f"group {candidate.group}"
    return f"text {fold_text(candidate.text)}"


def count_answers(hits: Sequence[Hit]) -> int:
    """Return the number of groups among some hits; a hit without a group counts as one."""
    return len(best_wordings(hit.candidate.group for hit in hits))


def choose_wordings(
    hits: Sequence[Hit], scores: Float32 | Float64, history: Mapping[str, int]
) -> list[int]:
    """Return the indices of the hits to list, best first: one of each group, all without a group.

    From a group it takes the hit with the best score, or a nearly equal one that the responder said
    longer ago.

    Args:
        hits: k hits.
        scores: (k,) their scores.
        history: The number of the reply that said each text last, by the text as `fold_text` gives
            it, and each candidate, by its id.
    """
    chosen: list[int] = []
    best: dict[str, tuple[int, float]] = {}
    for index in np.argsort(-scores, kind="stable").tolist():
        group = hits[index].candidate.group
        if group is None:
            chosen.append(index)
        elif group not in best:
            best[group] = (len(chosen), float(scores[index]))
            chosen.append(index)
        else:
            rank, best_score = best[group]
            is_near = scores[index] >= best_score - NEAR_EQUAL * abs(best_score)
            said = _last_said(hits[index], history)
            if is_near and said < _last_said(hits[chosen[rank]], history):
                chosen[rank] = index
    return chosen


def _last_said(hit: Hit, history: Mapping[str, int]) -> int:
    """Return the number of the reply that said a wording last; -1 if none did."""
    by_text = history.get(fold_text(hit.candidate.text), -1)
    return max(by_text, history.get(hit.candidate.id, -1))
