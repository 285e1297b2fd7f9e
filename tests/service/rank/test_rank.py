import pytest

from tests.support.messages import DIALOGUE, REPLIES, posts, scores, wrong
from tests.support.oracle import Oracle
from tests.support.service import Live, unseen, with_and_without_heads

CONTEXT = posts(DIALOGUE)
GOALS = [("bot", "I have booked it for you."), ("user", "Perfect, thank you!")]


def test_max_sim_and_last_rows(live: Live, oracle: Oracle) -> None:
    pairs = live.post("/rank", context=CONTEXT, candidates=REPLIES, aggregation="max_sim")
    naive = {text: oracle.max_sim(DIALOGUE, text) for text in REPLIES}
    assert scores(pairs) == pytest.approx(naive, abs=1e-3)
    newest = live.post("/rank", context=CONTEXT, candidates=REPLIES, last_rows=1)
    naive = {text: oracle.score(DIALOGUE, text, 1) for text in REPLIES}
    assert scores(newest) == pytest.approx(naive, abs=1e-3)
    assert scores(newest) == scores(newest, "fit")
    assert [*scores(newest).values()] == sorted(scores(newest).values(), reverse=True)
    assert [REPLIES[item["index"]] for item in newest["ranking"]] == [*scores(newest)]


@with_and_without_heads
def test_a_candidate_is_ranked_for_who_would_say_it(live: Live, oracle: Oracle) -> None:
    given = [{"text": REPLIES[0], "speaker": "user", "id": "a"}, {"text": REPLIES[1]}]
    live.say("s", DIALOGUE)
    for history in ({"context": CONTEXT}, {"session_id": "s"}):
        answer = live.post("/rank", **history, candidates=given, aggregation="mean")
        naive = {
            REPLIES[0]: oracle.score(DIALOGUE, REPLIES[0], target="user"),
            REPLIES[1]: oracle.score(DIALOGUE, REPLIES[1], target="bot"),
        }
        assert scores(answer) == pytest.approx(naive, abs=1e-3)
        assert scores(answer, "id") == {REPLIES[0]: "a", REPLIES[1]: None}


@with_and_without_heads
def test_goals_are_equation_4_weighted_plus_fit(live: Live, oracle: Oracle) -> None:
    weights = (1.0, -0.5)
    goals = [
        {"speaker": speaker, "text": text, "weight": weight}
        for (speaker, text), weight in zip(GOALS, weights, strict=True)
    ]
    answer = live.post(
        "/rank",
        context=CONTEXT,
        candidates=REPLIES,
        goals=goals,
        fit_weight=0.1,
        aggregation="mean",
    )
    for item in answer["ranking"]:
        reach = [oracle.reachability(DIALOGUE, ("bot", item["text"]), goal) for goal in GOALS]
        fit = oracle.score(DIALOGUE, item["text"])
        assert item["goals"] == pytest.approx(reach, abs=1e-3)
        assert item["fit"] == pytest.approx(fit, abs=1e-3)
        total = reach[0] - 0.5 * reach[1] + 0.1 * fit
        assert item["score"] == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize(("source", "weight"), [("pool", 0.5), ("candidates", 0.0)])
def test_the_fit_counts_for_half_in_a_pool_unless_the_request_says_otherwise(
    live: Live, source: str, weight: float
) -> None:
    given = {"pool": "default"} if source == "pool" else {"candidates": REPLIES}
    request = {"context": CONTEXT, **given, "goals": [{"text": GOALS[0][1]}]}
    assert scores(live.post("/rank", **request)) == pytest.approx(
        scores(live.post("/rank", **request, fit_weight=weight))
    )


@pytest.mark.parametrize("aggregation", ["last_rows", "max_sim"])
def test_an_explanation_adds_up_to_the_fit(live: Live, aggregation: str) -> None:
    request = {"context": CONTEXT, "aggregation": aggregation, "explain": True}
    given = [{"text": REPLIES[0], "speaker": "user"}, *REPLIES[1:]]
    for goals in ([], [{"text": GOALS[0][1]}]):
        for candidates in ({"candidates": given}, {"pool": "default"}):
            answer = live.post("/rank", **request, **candidates, goals=goals)
            for item in answer["ranking"]:
                assert len(item["contributions"]) == 5
                assert sum(item["contributions"]) == pytest.approx(item["fit"], abs=1e-3)


def test_a_goal_without_a_context_is_the_first_term_alone(live: Live, oracle: Oracle) -> None:
    goal = {"text": GOALS[0][1]}
    answer = live.post("/rank", context=[], candidates=REPLIES, goals=[goal])
    naive = {text: oracle.reachability([], ("bot", text), GOALS[0]) for text in REPLIES}
    assert scores(answer) == pytest.approx(naive, abs=1e-3)
    assert set(scores(answer, "fit").values()) == {None}


def test_what_leads_to_an_utterance_to_avoid_is_rejected_with_the_reason(
    live: Live, oracle: Oracle
) -> None:
    bad = ("user", "This is outrageous.")
    reach = {text: oracle.reachability(DIALOGUE, ("bot", text), bad) for text in REPLIES}
    ordered = sorted(reach.values())
    threshold = (ordered[2] + ordered[3]) / 2
    avoid = [{"speaker": bad[0], "text": bad[1], "threshold": threshold}]
    answer = live.post("/rank", context=CONTEXT, candidates=REPLIES, avoid=avoid)
    rejected = {item["text"]: item["reachability"] for item in answer["rejected"]}
    assert rejected == pytest.approx({t: r for t, r in reach.items() if r > threshold}, abs=1e-3)
    assert set(scores(answer)) == set(REPLIES) - set(rejected)
    assert all("avoid.0" in item["reason"] for item in answer["rejected"])


@with_and_without_heads
def test_a_pool_gives_the_candidates(live: Live, oracle: Oracle) -> None:
    answer = live.post("/rank", context=CONTEXT, pool="default", top_k=3, aggregation="mean")
    assert answer["pool"]["name"] == "default"
    naive = {text: oracle.score(DIALOGUE, text) for text in REPLIES}
    best = sorted(naive, key=lambda text: -naive[text])[:3]
    assert list(scores(answer)) == best
    toward = live.post("/rank", context=CONTEXT, pool="default", goals=[{"text": "Goodbye"}])
    assert {item["text"] for item in toward["ranking"]} == set(REPLIES)
    assert all(item["id"].startswith("r") for item in toward["ranking"])


def test_toward_a_goal_only_what_equation_4_reads_is_encoded(live: Live) -> None:
    encoded = live.encoded()
    goals = unseen(live, [{"text": "Perfect, thank you!", "speaker": "user"}])
    candidates = unseen(live, [{"text": text} for text in REPLIES[:2]])
    live.post("/rank", context=unseen(live, CONTEXT), candidates=candidates, goals=goals)
    assert encoded() == {"first": 5, "second": 2, "after": 1}


def test_max_sim_of_more_pairs_than_it_can_score_is_refused(live: Live) -> None:
    context = [{"speaker": f"s{n % 2}", "text": f"Word {n}"} for n in range(200)]
    body = {"context": context, "candidates": ["x"] * 600, "aggregation": "max_sim"}
    assert wrong(live.http.post("/rank", json=body)) == [["body", "candidates"]]


@pytest.mark.parametrize(
    "body",
    [
        {"candidates": REPLIES},
        {"context": [], "candidates": REPLIES},
        {"context": CONTEXT},
        {"context": CONTEXT, "candidates": REPLIES, "pool": "default"},
        {"context": CONTEXT, "session_id": "s", "candidates": REPLIES},
        {"context": [], "pool": "default", "goals": [{"text": "x"}]},
        {"context": CONTEXT, "candidates": ["x"] * 1001},
    ],
)
def test_what_cannot_be_ranked_is_invalid(live: Live, body: dict[str, object]) -> None:
    assert wrong(live.http.post("/rank", json=body))
