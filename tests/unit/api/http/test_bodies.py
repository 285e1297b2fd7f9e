import pytest

from turnwise.service.api.http.bodies import answer, answer_in_parts
from turnwise.service.wire.ranking import RankAnswer, Ranked, Rejected

TEXT = 'such as "ranking":[]'
RANKED = Ranked(index=0, id=None, text=TEXT, score=1.5, fit=1.5, goals=[], contributions=[1.0, 0.5])
REJECTED = Rejected(index=1, id="r", text=TEXT, reason="no", avoid=0, reachability=0.9)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_answer_in_parts_is_the_answer(count: int) -> None:
    value = RankAnswer(
        ranking=[RANKED] * count,
        rejected=[REJECTED],
        pool=None,
        model="m",
        timings_ms={"total": 2.0},
    )
    whole = answer(value, value.timings_ms)
    joined = answer_in_parts(value, "ranking", value.timings_ms)
    assert joined.body == whole.body
    assert joined.raw_headers == whole.raw_headers
