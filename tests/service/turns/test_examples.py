"""Candidates that are found by their examples, and wordings of one answer."""

from tests.support.messages import QUESTIONS, REPLIES
from tests.support.service import Live


def test_an_example_finds_its_candidate_and_is_counted(live: Live) -> None:
    live.give_examples()
    labels = {"namespace": live.namespace, "pool": "default"}
    by_example = live.increase("turnwise_matched_total", kind="example", **labels)
    for index, question in enumerate(QUESTIONS):
        answer = live.turn(f"s{index}", "user", question, explain=True)
        first = answer["candidates"][0]
        assert (first["id"], first["matched"]) == (f"r{index}", {"example": question})
        assert abs(sum(first["contributions"]) - first["score"]) < 1e-3
    assert by_example() == len(QUESTIONS)


def test_an_answer_lists_one_wording_of_a_group_unless_it_lists_all(live: Live) -> None:
    live.give_examples()
    best = live.turn("s", "user", QUESTIONS[0], top_k=len(REPLIES))["candidates"]
    every = live.turn("t", "user", QUESTIONS[0], top_k=len(REPLIES), wordings="all")["candidates"]
    assert len(best) == len(every) - 1 == len(REPLIES) - 1
    assert [each["id"] for each in best if each.get("group") == "answer"] == ["r0"]
