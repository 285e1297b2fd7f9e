"""What candidates may have: examples, a group, a body."""

from tests.support.messages import QUESTIONS, REPLIES
from tests.support.service import Live


def test_an_example_finds_its_candidate_which_is_listed_once_a_group(live: Live) -> None:
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
    best = live.turn("s", "user", QUESTIONS[0], top_k=len(REPLIES))["candidates"]
    assert [each["id"] for each in best if each.get("group") == "answer"] == ["r0"]


def test_a_body_comes_with_its_candidate_and_changes_no_score(live: Live) -> None:
    before = live.turn("s", "user", "Hello", top_k=len(REPLIES))["candidates"]
    first = {"id": before[0]["id"], "text": before[0]["text"], "body": "# A page\n\nIts text."}
    uploaded = live.put("/pools/default/candidates", [first])
    assert (uploaded["upserted"], uploaded["unchanged"]) == (1, 0)
    after = live.turn("t", "user", "Hello", top_k=len(REPLIES))["candidates"]
    assert after == [before[0] | {"body": first["body"]}, *before[1:]]
    searched = live.post("/pools/default/search", text="Hello", top_k=1)["candidates"]
    context = [{"speaker": "user", "text": "Hello"}]
    ranked = live.post("/rank", context=context, pool="default", top_k=1)["ranking"]
    assert searched[0]["body"] == ranked[0]["body"] == first["body"]
