import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.selection.pool import ArrayPool, random_units
from turnwise.models.fusion import NO_EXAMPLE, Fusion
from turnwise.service.pools import Filter, Hit
from turnwise.service.selection.followers import Followers
from turnwise.service.selection.search import FusedSearch, ReplySearch

pytestmark = pytest.mark.anyio

FUSION = Fusion(example=3.0, height=1.0, offset=-3.0, softness=0.5)


def make_pool(size: int, covered: int, seed: int) -> ArrayPool:
    """A pool in which the first candidates have one to three examples each."""
    pool = ArrayPool.of([f"reply {index}" for index in range(size)], seed)
    for index in range(covered):
        pool.examples[f"c{index}"] = random_units(1 + index % 3, seed + 100 + index)
    return pool


@given(
    size=st.integers(2, 60),
    covered=st.sampled_from([0, 1, 5, 60]),
    following=st.sets(st.integers(0, 59), max_size=4),
    bonus=st.floats(0, 3),
    top_k=st.integers(1, 12),
    seed=st.integers(0, 10_000),
)
async def test_the_best_scores_of_all_candidates_are_found_with_examples_and_followers(
    *, size: int, covered: int, following: set[int], bonus: float, top_k: int, seed: int
) -> None:
    pool = make_pool(size, min(covered, size), seed)
    query = 2 * random_units(1, seed + 1)[0]
    said = random_units(1, seed + 2)[0]
    replies = pool.after.astype(np.float64) @ query.astype(np.float64)
    of_replies = await pool.spread(query)
    followers = Followers(
        [
            Hit(pool.candidates[index], float(replies[index]), follows="c0")
            for index in following
            if index < size
        ],
        bonus,
    )
    for hit in followers.hits:
        replies[int(hit.candidate.id.removeprefix("c"))] += bonus
    search = ReplySearch(pool, query, None, followers)
    examples = np.full(size, None)
    if pool.has_examples:
        search = FusedSearch(pool, query, None, followers, said=said, fusion=FUSION)
        matches = await pool.best_examples(said, [each.id for each in pool.candidates])
        examples = np.array([match.score if match else NO_EXAMPLE for match in matches])
        of_examples = await pool.example_spread(said)
        replies = FUSION.scores(replies, examples, of_replies, of_examples)
    hits = await search.search(top_k)
    assert [hit.score for hit in hits] == pytest.approx(np.sort(replies)[::-1][:top_k], abs=1e-6)
    places = [int(hit.candidate.id.removeprefix("c")) for hit in hits]
    assert len(set(places)) == len(places)
    assert [search.example_score(hit) for hit in hits] == examples[places].tolist()
    follow = {hit.candidate.id for hit in followers.hits}
    assert all((hit.follows == "c0") == (hit.candidate.id in follow) for hit in hits)


async def test_the_filter_holds_for_both_searches() -> None:
    pool = make_pool(20, 20, seed=8)
    pool.candidates = [
        type(each).of(each.text, each.id, {"odd": index % 2 == 1})
        for index, each in enumerate(pool.candidates)
    ]
    where = Filter.of({"odd": True})
    search = FusedSearch(
        pool, random_units(1, 9)[0], where, said=random_units(1, 10)[0], fusion=FUSION
    )
    assert len(await search.search(20)) == 10
