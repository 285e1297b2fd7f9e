"""Raises the scores of candidates whose metadata name the last reply in `after`.

A short answer such as "half past ten" says little by itself: which reply fits it depends on the
question before it. So the metadata `after` of a candidate name the replies that it follows.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from turnwise.models.arrays import Float32
from turnwise.models.confidence import Spread
from turnwise.service.pools import Hit
from turnwise.service.selection.request import SelectionRequest

FOLLOWER_BONUS = 1.5
"""Standard deviations of the reply scores of the pool that a follower gains. With more, R@1 on STAR
is hardly better and the confidence is worse: `docs/attempts.md`, "What follows a reply"."""
_MOST = 100
"""Followers of a reply that a search considers: those with the best scores."""


@dataclass(frozen=True, slots=True)
class Followers:
    """The candidates that follow the last reply.

    Attributes:
        hits: The candidates with their scores, without the bonus.
        bonus: The bonus of each, in the units of the scores.
    """

    hits: Sequence[Hit] = ()
    bonus: float = 0.0

    def join(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the followers, then the other hits."""
        ids = {hit.candidate.id for hit in self.hits}
        return [*self.hits, *(hit for hit in hits if hit.candidate.id not in ids)]

    def bonus_of(self, hit: Hit) -> float:
        """Return the bonus of a hit, which is 0 if it does not follow the last reply."""
        return self.bonus if hit.follows else 0.0


NO_FOLLOWERS = Followers()


async def find_followers(
    request: SelectionRequest, query: Float32, spread: Callable[[], Awaitable[Spread]]
) -> Followers:
    """Return the candidates that follow the responder's last reply and that the filter matches.

    Args:
        request: The request of the search.
        query: (d,) its query.
        spread: Returns the reply scores of all candidates, which are needed if there are followers.

    Raises:
        StoreUnavailable: The candidate store of the pool does not answer.
    """
    if not request.repeats.replies:
        return NO_FOLLOWERS
    last = request.repeats.replies[-1]
    where = request.options.where
    hits = await request.view.search_followers(last.candidate, last.text, query, _MOST, where)
    if not hits:
        return NO_FOLLOWERS
    return Followers(hits, FOLLOWER_BONUS * (await spread()).deviation)
