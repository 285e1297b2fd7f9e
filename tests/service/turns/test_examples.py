"""Candidates that are found by their examples, and wordings of one answer."""

from tests.support.messages import QUESTIONS, REPLIES
from tests.support.service import Live


def test_an_example_finds_its_candidate_and_is_counted(live: Live) -> None:
    live.give_examples()
    labels = {"namespace": live.namespace, "pool": "default"}
    by_example = live.increase("turnwise_matched_total", kind="example", **labels)
    found = 0
    for index, question in enumerate(QUESTIONS):
        options = {"explain": True, "top_k": len(REPLIES), "wordings": "all"}
        candidates = live.turn(f"s{index}", "user", question, **options)["candidates"]
        found += "matched" in candidates[0]
        (asked,) = (each for each in candidates if each["id"] == f"r{index}")
        assert asked["matched"] == {"example": question}
        for each in candidates:
            assert abs(sum(each["contributions"]) - each["score"]) < 1e-3
    assert by_example() == found > 0


def test_an_answer_lists_one_wording_of_a_group_unless_it_lists_all(live: Live) -> None:
    live.give_examples()
    best = live.turn("s", "user", QUESTIONS[0], top_k=len(REPLIES))["candidates"]
    every = live.turn("t", "user", QUESTIONS[0], top_k=len(REPLIES), wordings="all")["candidates"]
    assert len(best) == len(every) - 1 == len(REPLIES) - 1
    assert [each["id"] for each in best if each.get("group") == "answer"] == ["r0"]
