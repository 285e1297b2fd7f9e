import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from tests.support.messages import DIALOGUE, posts, problem, wrong
from tests.support.oracle import Oracle
from tests.support.service import Live, with_and_without_heads
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


METHODS = {
    "chain_curved": ((1.0, -0.5, -1.0), pull),
    "iec": ((0.0, 0.0, 0.0), published_pull),
    "iec_cu": ((1.0, -0.5, -1.0), published_pull),
}
"""Weights of the goals by their places, and the pull of the history on a goal."""


@with_and_without_heads
def test_curving_adds_the_pull_of_the_history(live: Live, oracle: Oracle) -> None:
    live.say("s", DIALOGUE)
    for method, (weights, pull) in METHODS.items():
        expected = naive(oracle, weights, pull)
        for history in ({"context": CONTEXT}, {"session_id": "s"}):
            answer = live.post("/plan", **history, goals=goals(), method=method, top=6)
            assert answer["method"] == method
            assert scores(answer) == pytest.approx(expected, abs=4e-3)


def test_greedy_takes_what_the_history_pulls_at_most(live: Live, oracle: Oracle) -> None:
    answer = live.post("/plan", context=CONTEXT, goals=goals(), method="greedy")
    pulls = [pull(oracle, goal) for goal in range(3)]
    order = sorted(range(3), key=lambda goal: -pulls[goal])
    assert answer["orders"][0]["order"] == [f"g{goal}" for goal in order]


def test_methods_of_the_history_need_one(live: Live) -> None:
    live.http.put("/sessions/new", json={})
    for method in ("chain_curved", "greedy", "iec_cu", "gc"):
        asked = {"goals": goals(), "method": method}
        assert wrong(live.http.post("/plan", json=asked)) == [["body", "context"]]
        answer = live.http.post("/plan", json=asked | {"session_id": "new"})
        assert problem(answer) == (409, "conflict")
        assert "has no utterance" in answer.json()["detail"]


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


def test_a_goal_is_encoded_once_in_each_relation(live: Live) -> None:
    goals = [{"text": f"Goal {n}", "speaker": f"speaker {n}"} for n in range(16)]
    live.post("/plan", goals=goals)
    read_again = live.increase("turnwise_vector_cache_hits_total")
    live.post("/plan", goals=goals)
    assert read_again() == 3 * len(goals)  # as a goal, and as context in two relations
