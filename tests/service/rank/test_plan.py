import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from tests.support.messages import DIALOGUE, posts, problem, wrong
from tests.support.oracle import Oracle
from tests.support.service import Live, unseen, with_and_without_heads
from tests.support.waiting import PATIENCE
from turnwise.models.planning import Order
from turnwise.models.roles import Role, relation_to
from turnwise.service.api.access.concurrency import SHARE
from turnwise.service.use_cases import plan as planning

CONTEXT = posts(DIALOGUE)
GOALS = [("bot", "What is your name?"), ("user", "My name is Ada."), ("bot", "Here is your key.")]


def goals() -> list[dict[str, str]]:
    return [
        {"id": f"g{place}", "speaker": speaker, "text": text}
        for place, (speaker, text) in enumerate(GOALS)
    ]


def link(oracle: Oracle, x: int, y: int) -> float:
    (speaker, text) = GOALS[x]
    (target, goal) = GOALS[y]
    before = oracle.encoder.encode([text], Role.SECOND, relation_to(speaker, target))[0]
    return float(before @ oracle.after(goal))


def pull(oracle: Oracle, goal: int) -> float:
    speaker, text = GOALS[goal]
    _, second = oracle.context(DIALOGUE, speaker)
    return float(np.mean([b @ oracle.after(text) for b in second[-2:]])) / 2


def published_pull(oracle: Oracle, goal: int) -> float:
    speaker, text = GOALS[goal]
    _, second = oracle.context(DIALOGUE, speaker)
    return float(sum(b @ oracle.after(text) for b in second))


def naive(
    oracle: Oracle,
    weights: tuple[float, float, float],
    pull: Callable[[Oracle, int], float] = pull,
) -> dict[tuple[str, ...], float]:
    return {
        tuple(f"g{goal}" for goal in order): sum(link(oracle, *order[t : t + 2]) for t in range(2))
        + sum(w * pull(oracle, goal) for w, goal in zip(weights, order, strict=True))
        for order in permutations(range(3))
    }


def scores(answer: dict[str, Any]) -> dict[tuple[str, ...], float]:
    return {tuple(order["order"]): order["score"] for order in answer["orders"]}


@with_and_without_heads
def test_a_chain_is_the_sum_of_its_links(live: Live, oracle: Oracle) -> None:
    answer = live.post("/plan", goals=goals(), top=10)
    assert scores(answer) == pytest.approx(naive(oracle, (0, 0, 0)), abs=1e-3)
    values = list(scores(answer).values())
    assert values == sorted(values, reverse=True)
    assert answer["next_goal"] == answer["orders"][0]["order"][0]
    assert answer["optimal"] is True


@with_and_without_heads
def test_curving_adds_the_pull_of_the_history(live: Live, oracle: Oracle) -> None:
    live.say("s", DIALOGUE)
    expected = naive(oracle, (1.0, -0.5, -1.0))
    for history in ({"context": CONTEXT}, {"session_id": "s"}):
        answer = live.post("/plan", **history, goals=goals(), method="chain_curved", top=6)
        assert scores(answer) == pytest.approx(expected, abs=2e-3)


@with_and_without_heads
def test_published_methods_have_the_published_scores(live: Live, oracle: Oracle) -> None:
    live.say("s", DIALOGUE)
    for weights, method in [((0, 0, 0), "iec"), ((1.0, -0.5, -1.0), "iec_cu")]:
        expected = naive(oracle, weights, published_pull)
        for history in ({"context": CONTEXT}, {"session_id": "s"}):
            answer = live.post("/plan", **history, goals=goals(), method=method, top=6)
            assert answer["method"] == method
            assert scores(answer) == pytest.approx(expected, abs=4e-3)


def test_published_greedy_curving_takes_the_largest_sum_over_the_context(
    live: Live, oracle: Oracle
) -> None:
    answer = live.post("/plan", context=CONTEXT, goals=goals(), method="gc")
    order = sorted(range(3), key=lambda goal: -published_pull(oracle, goal))
    assert answer["orders"][0]["order"] == [f"g{goal}" for goal in order]


def test_greedy_takes_what_the_history_pulls_at_most(live: Live, oracle: Oracle) -> None:
    answer = live.post("/plan", context=CONTEXT, goals=goals(), method="greedy")
    pulls = [pull(oracle, goal) for goal in range(3)]
    order = sorted(range(3), key=lambda goal: -pulls[goal])
    assert answer["orders"][0]["order"] == [f"g{goal}" for goal in order]


def test_greedy_encodes_only_what_the_pull_is_made_of(live: Live) -> None:
    encoded = live.encoded()
    context = unseen(live, CONTEXT)
    live.post("/plan", context=context, goals=unseen(live, goals()[::2]), method="greedy")
    assert encoded() == {"second": 2, "after": 2}


def test_methods_of_the_history_need_one(live: Live) -> None:
    live.http.put("/sessions/new", json={})
    for method in ("chain_curved", "greedy", "iec_cu", "gc"):
        asked = {"goals": goals(), "method": method}
        assert wrong(live.http.post("/plan", json=asked)) == [["body", "context"]]
        answer = live.http.post("/plan", json=asked | {"session_id": "new"})
        assert problem(answer) == (409, "conflict")
        assert "has no utterance" in answer.json()["detail"]


def test_two_goals_of_one_id_are_refused(live: Live) -> None:
    twice = [{"id": "g", "text": "One"}, {"id": "g", "text": "Two"}]
    answer = live.http.post("/plan", json={"goals": twice})
    assert wrong(answer) == [["body", "goals"]]
    assert answer.json()["errors"][0]["msg"] == "two goals have the same id"


def test_sixteen_goals_are_planned_and_no_more(live: Live) -> None:
    many = [{"text": f"Goal {number}"} for number in range(17)]
    answer = live.post("/plan", goals=many[:16], top=100)
    assert len(answer["orders"]) == 100
    refused = live.http.post("/plan", json={"goals": many})
    assert wrong(refused) == [["body", "goals"]]
    assert "at most 16 items" in refused.json()["errors"][0]["msg"]


def test_a_goal_is_read_once_in_each_relation(live: Live) -> None:
    said_by = [{"text": f"Goal {n}", "speaker": f"speaker {n}"} for n in range(16)]
    live.post("/plan", goals=said_by)
    read_again = live.increase("turnwise_vector_cache_hits_total")
    live.post("/plan", goals=said_by)
    assert read_again() == 3 * len(said_by)


def test_a_plan_is_rejected_before_its_goals_are_encoded(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    plan = planning.plan_chain
    most = SHARE

    def planned_late(*given: object) -> tuple[Order, ...]:
        assert go_on.wait(PATIENCE)
        return plan(*given)

    def asked(number: int) -> int:
        new = [{"text": f"New goal {number} {letter}"} for letter in "ab"]
        status = live.http.post("/plan", json={"goals": new}).status_code
        if status == 429:
            go_on.set()
        return status

    monkeypatch.setattr(planning, "plan_chain", planned_late)
    encoded = live.encoded()
    with ThreadPoolExecutor(most + 1) as threads:
        statuses = list(threads.map(asked, range(most + 1)))
    assert sorted(statuses) == [200] * most + [429]
    assert encoded()["after"] == most * 2


def test_turns_do_not_wait_for_plans(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()
    go_on = threading.Event()
    plan = planning.plan_chain

    def planned_late(*given: object) -> tuple[Order, ...]:
        waits.set()
        assert go_on.wait(PATIENCE)
        return plan(*given)

    monkeypatch.setattr(planning, "plan_chain", planned_late)
    live.say("s", DIALOGUE)
    with ThreadPoolExecutor(SHARE) as threads:
        plans = [threads.submit(live.post, "/plan", goals=goals()) for _ in range(SHARE)]
        assert waits.wait(PATIENCE)
        assert live.turn("s", "user", "And now?", aggregation="max_sim")["candidates"]
        assert not any(each.done() for each in plans)
        go_on.set()
        assert len({str(each.result()["orders"]) for each in plans}) == 1
