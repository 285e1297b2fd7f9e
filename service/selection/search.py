"""Searches a pool by replies alone, or by replies and by examples at once.

A candidate may be found by its text, with the running query, or by one of its examples, with the
vector of the newest utterance. `models.fusion` makes one score of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from turnwise.models.arrays import Float32, Float64
from turnwise.models.confidence import Spread
from turnwise.models.fusion import NO_EXAMPLE, Fusion
from turnwise.service.pools import Filter, Hit, PoolView
from turnwise.service.selection.followers import NO_FOLLOWERS, Followers


@dataclass(slots=True)
class ReplySearch:
    """Searches a pool by replies for one request.

    Attributes:
        view: The pool.
        query: (d,) the running query, or the query of the pairwise model.
        where: The filter; None matches all candidates.
        followers: The candidates that follow the last reply. All of them are considered.
    """

    view: PoolView
    query: Float32
    where: Filter | None
    followers: Followers = NO_FOLLOWERS
    _spread: Spread | None = field(default=None, init=False)

    async def spread(self) -> Spread:
        """Return the reply scores of all candidates that the filter matches, computed once."""
        if self._spread is None:
            self._spread = await self.view.spread(self.query, self.where)
        return self._spread

    async def search(self, top_k: int) -> list[Hit]:
        """Return the candidates with the best scores, best first; all if there are fewer."""
        hits = await self.view.search(self.query, top_k, self.where)
        if not self.followers.hits:
            return hits
        raised = [
            hit._replace(score=hit.score + self.followers.bonus_of(hit))
            for hit in self.followers.join(hits)
        ]
        return sorted(raised, key=lambda hit: (-hit.score, hit.candidate.id))[:top_k]

    def reply_score(self, hit: Hit) -> float:
        """Return the score of a hit, without a bonus."""
        return hit.score - self.followers.bonus_of(hit)

    def example_score(self, hit: Hit) -> float | None:  # noqa: ARG002
        """Return None: examples take no part."""
        return None


@dataclass(slots=True)
class FusedSearch(ReplySearch):
    """Searches a pool by replies and by examples for one request.

    Attributes:
        said: (d,) the newest utterance, in the space of examples; another speaker than the
            responder said it.
        fusion: How reply scores and example scores meet.
        utterance_count: Number of utterances of the context.
        example_scores: The example scores of the candidates that were found, by id; `NO_EXAMPLE`
            for candidates without examples.
        reply_scores: Their reply scores, by id.
    """

    said: Float32 = field(kw_only=True)
    fusion: Fusion = field(kw_only=True)
    utterance_count: int = field(default=1, kw_only=True)
    example_scores: dict[str, float] = field(default_factory=dict)
    reply_scores: dict[str, float] = field(default_factory=dict)

    async def search(self, top_k: int) -> list[Hit]:
        """Return the candidates with the best fused scores, best first; all if there are fewer.

        One search goes by replies, the other one by examples. The fused score grows with both
        scores. So the fused score of the last hits of the two searches is a bound for candidates
        that neither has found. Both go deeper until `top_k` candidates reach that bound.
        """
        reply_spread = await self.spread()
        example_spread = await self.view.example_spread(self.said, self.where)
        fuse = partial(
            self.fusion.scores,
            of_replies=reply_spread,
            of_examples=example_spread,
            utterances=self.utterance_count,
        )
        depth = 2 * top_k
        while True:
            by_reply = await self.view.search(self.query, depth, self.where)
            by_example = await self.view.search_examples(self.said, depth, self.where)
            hits = await self._merge_hits(self.followers.join(by_reply), by_example)
            bonuses = np.array([self.followers.bonus_of(hit) for hit in hits])
            replies = np.array([self.reply_score(hit) for hit in hits]) + bonuses
            examples = np.array([self.example_score(hit) for hit in hits])
            scores = fuse(replies, examples)
            best = np.argsort(-scores, kind="stable")[:top_k]
            if len(by_reply) < depth:  # the whole pool was found
                break
            last_reply = by_reply[-1].score
            last_example = by_example[-1].score if len(by_example) == depth else NO_EXAMPLE
            [bound] = fuse(np.array([last_reply]), np.array([last_example]))
            if scores[best[-1]] >= bound:
                break
            depth *= 2
        has_matched = self.fusion.has_matched(
            replies[best], examples[best], reply_spread, example_spread, self.utterance_count
        )
        fused: list[Hit] = []
        for index, matched in zip(best.tolist(), has_matched.tolist(), strict=True):
            hit = hits[index]
            match = hit.match if matched else None
            fused.append(hit._replace(score=float(scores[index]), match=match))
        return fused

    def reply_score(self, hit: Hit) -> float:
        """Return the score of a hit without its examples and without a bonus."""
        return self.reply_scores[hit.candidate.id]

    def example_score(self, hit: Hit) -> float:
        """Return the score of the best example of a hit; `NO_EXAMPLE` if it has none."""
        return self.example_scores[hit.candidate.id]

    async def _merge_hits(self, by_reply: Sequence[Hit], by_example: Sequence[Hit]) -> list[Hit]:
        """Return each candidate once, with its best example, and note both of its scores."""
        self.reply_scores.update((hit.candidate.id, hit.score) for hit in by_reply)
        matches = {hit.candidate.id: hit.match for hit in by_example}
        follows = {hit.candidate.id: hit.follows for hit in by_reply}
        candidates = {hit.candidate.id: hit.candidate for hit in (*by_reply, *by_example)}
        unscored = [id for id in candidates if id not in self.reply_scores]
        if unscored:
            vectors = await self.view.vectors(unscored)
            scores: Float64 = vectors.astype(np.float64) @ self.query.astype(np.float64)
            self.reply_scores.update(zip(unscored, scores.tolist(), strict=True))
        unmatched = [id for id in candidates if id not in matches]
        if unmatched:
            best = await self.view.best_examples(self.said, unmatched)
            matches.update(zip(unmatched, best, strict=True))
        for id, match in matches.items():
            self.example_scores[id] = match.score if match else NO_EXAMPLE
        return [
            Hit(candidate, self.reply_scores[id], matches[id], follows.get(id))
            for id, candidate in candidates.items()
        ]
