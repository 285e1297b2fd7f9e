"""The equations of the papers, pair by pair, in float64."""

from functools import cache

import numpy as np

from tests.support.messages import Said
from turnwise.models.arrays import Float64
from turnwise.models.data import Utterance, merge_runs
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import Relation, Role, relation_to


class Oracle:
    """The equations of the papers, pair by pair, in float64."""

    def __init__(self, encoder: UtteranceEncoder) -> None:
        self.encoder = encoder

    @cache  # noqa: B019 - one for all tests
    def vector(self, text: str, role: Role, relation: Relation | None = None) -> Float64:
        return self.encoder.encode([text], role, relation)[0].astype(np.float64)

    def after(self, text: str) -> Float64:
        return self.vector(text, Role.AFTER)

    def context(self, said: Said, target: str) -> tuple[list[Float64], list[Float64]]:
        merged = merge_runs(Utterance(*post) for post in said)
        first, second = (
            [self.vector(u.text, role, relation_to(u.speaker, target)) for u in merged]
            for role in (Role.FIRST, Role.SECOND)
        )
        return first, second

    def pairs(self, said: Said, text: str, target: str = "bot") -> dict[tuple[int, int], float]:
        """cos((b1_i + b2_j)/2, a_f) of every i < j."""
        first, second = self.context(said, target)
        return {
            (i, j): _cosine(first[i] + second[j], self.after(text))
            for j in range(len(second))
            for i in range(j)
        }

    def score(
        self, said: Said, text: str, last_rows: int | None = None, target: str = "bot"
    ) -> float:
        pairs = self.pairs(said, text, target)
        if not pairs:
            return float(self.context(said, target)[1][0] @ self.after(text))
        n = 1 + max(j for _, j in pairs)
        return sum(x for (_, j), x in pairs.items() if last_rows is None or j >= n - last_rows)

    def max_sim(self, said: Said, text: str) -> float:
        pairs = self.pairs(said, text)
        if not pairs:
            return self.score(said, text)
        used: set[int] = set()
        counted = []
        for (i, j), score in sorted(pairs.items(), key=lambda pair: -pair[1]):
            if i not in used or j not in used:
                counted.append(score)
                used |= {i, j}
        return sum(counted) / len(counted)

    def reachability(self, said: Said, candidate: tuple[str, str], goal: tuple[str, str]) -> float:
        (speaker, text) = candidate
        (goal_speaker, goal_text) = goal
        relation = relation_to(speaker, goal_speaker)
        second = self.vector(text, Role.SECOND, relation)
        first, _ = self.context(said, goal_speaker)
        goal_vector = self.after(goal_text)
        mixed = [_cosine(b1 + second, goal_vector) for b1 in first]
        return float(second @ goal_vector) + sum(mixed) / max(len(mixed), 1)


def _cosine(x: Float64, y: Float64) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
