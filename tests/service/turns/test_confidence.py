"""The confidence of answers over HTTP: its value, where there is none, and abstaining."""

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.messages import DIALOGUE, REPLIES, posts, scores, write_lines
from tests.support.oracle import Oracle
from tests.support.service import CALIBRATION, Live, Turnwise
from turnwise.models.confidence import Spread, features, rescale
from turnwise.models.data import Dialogue, Utterance
from turnwise.service.cli.models import calibrate as calibrate_command

SAID = [*DIALOGUE[:2], ("user", "My parcel has not come. It was due on Monday.")]
CONTEXT = posts(SAID)
ALL = len(REPLIES)


@pytest.fixture
def live(calibrated: Live) -> Live:
    return calibrated


def last_turn(live: Live, session: str = "s", **options: object) -> dict[str, Any]:
    """Post all turns of `SAID`, the last one with options, and return its answer."""
    live.say(session, SAID[:-1], respond=False)
    return live.turn(session, *SAID[-1], **options)


def all_scores(live: Live) -> dict[str, float]:
    """The score of each candidate after `SAID`; other tests check them."""
    return scores(live.post("/rank", context=CONTEXT, pool="default", top_k=ALL))


def expected(
    oracle: Oracle, scores: dict[str, float], left: Collection[str], searched: int
) -> object:
    """The confidence of a pool with these scores after `SAID`.

    Candidates that are not `left` may not be offered; `searched` of them match the filter.
    """
    first, second = oracle.context(SAID, "bot")
    pairs = [b1 + b2 for j, b2 in enumerate(second) for b1 in first[:j]]
    norm = np.linalg.norm(sum(pair / np.linalg.norm(pair) for pair in pairs))
    values = [*scores.values()]
    next_best, best = sorted(scores[text] for text in left)[-2:]
    spread = Spread(np.mean(values), np.std(values), searched)
    confidence = CALIBRATION.confidence(features(best, next_best, spread, norm, len(SAID)))
    return pytest.approx(float(confidence), abs=5e-3)


def test_it_is_what_the_calibration_makes_of_the_scores(live: Live, oracle: Oracle) -> None:
    wanted = expected(oracle, all_scores(live), REPLIES, ALL)
    answer = last_turn(live)
    assert answer["confidence"] == wanted
    assert not answer["abstained"]
    assert live.turn("t", "user", "Hello", top_k=1)["confidence"] is not None
    ranked = live.post("/rank", context=CONTEXT, pool="default", top_k=1)
    assert ranked["confidence"] == wanted
    assert live.post("/rank", session_id="s", pool="default")["confidence"] == wanted


def test_it_is_of_what_may_be_offered(live: Live, oracle: Oracle) -> None:
    found = all_scores(live)
    best, *left = found
    wanted = expected(oracle, found, left, ALL)
    assert last_turn(live, exclude=[f"r{REPLIES.index(best)}"])["confidence"] == wanted


def test_with_a_filter_it_counts_the_candidates_that_match(live: Live, oracle: Oracle) -> None:
    items = [
        {"id": f"r{place}", "text": text, "metadata": {"even": place % 2 == 0}}
        for place, text in enumerate(REPLIES)
    ]
    live.put("/pools/default/candidates", items)
    wanted = expected(oracle, all_scores(live), REPLIES[::2], ALL // 2)
    assert last_turn(live, where={"even": True})["confidence"] == wanted
    ranked = live.post("/rank", context=CONTEXT, pool="default", where={"even": True})
    assert ranked["confidence"] == wanted


@pytest.mark.parametrize(
    "options",
    [
        {"aggregation": "max_sim"},
        {"last_rows": 1},
        {"where": {"no": "such"}},
        {"exclude": [f"r{place}" for place in range(1, ALL)]},
        {"pool": "pairs"},
        {"respond": False},
    ],
    ids=["max_sim", "last_rows", "none", "one", "pairwise", "silent"],
)
def test_it_is_null_where_it_cannot_be_known(live: Live, options: dict[str, Any]) -> None:
    live.put("/pools/pairs", {"encoder": "pairwise", "min_confidence": 1.0})
    live.fill(pool="pairs")
    live.put("/pools/default", {"min_confidence": 1.0})
    answer = last_turn(live, **options)
    assert answer["confidence"] is None
    assert not answer["abstained"]


def test_a_ranking_that_is_not_by_the_context_alone_has_none(live: Live) -> None:
    goal = {"text": "Thank you"}
    avoided = {"text": "Goodbye", "threshold": 10.0}
    for fields in ({"goals": [goal]}, {"avoid": [avoided]}, {"aggregation": "max_sim"}):
        ranked = live.post("/rank", context=CONTEXT, pool="default", **fields)
        assert ranked["confidence"] is None
    assert live.post("/rank", context=CONTEXT, candidates=REPLIES)["confidence"] is None


def test_a_turn_below_the_threshold_abstains(live: Live) -> None:
    labels = {"namespace": live.namespace, "pool": "default"}
    abstained = live.increase("turnwise_turns_total", outcome="abstained", **labels)
    answered = live.increase("turnwise_turns_total", outcome="answered", **labels)
    confidence = last_turn(live, "s")["confidence"]
    low = confidence - 1e-4
    high = confidence + 1e-4
    assert last_turn(live, "t", min_confidence=low)["candidates"]
    answer = last_turn(live, "u", min_confidence=high)
    assert (answer["candidates"], answer["abstained"]) == ([], True)
    assert answer["confidence"] == pytest.approx(confidence)
    assert answer["pool"]["name"] == "default"
    assert (abstained(), answered()) == (1, 2)
    assert live.get("/sessions/u")["turns"] == len(SAID)


def test_the_pool_has_a_threshold_and_the_request_overrides_it(live: Live) -> None:
    info = live.put("/pools/default", {"min_confidence": 1.0})
    assert info["min_confidence"] == live.get("/pools/default")["min_confidence"] == 1.0
    assert last_turn(live, "s")["abstained"]
    assert not last_turn(live, "t", min_confidence=0.0)["abstained"]
    live.put("/pools/default", {"description": "of a shop"})
    assert live.get("/pools/default")["min_confidence"] == 1.0
    info = live.put("/pools/default", {"min_confidence": None})
    assert (info["min_confidence"], info["description"]) == (None, "of a shop")
    assert not last_turn(live, "u")["abstained"]


def test_the_calibration_of_a_pool_moves_its_confidences(live: Live) -> None:
    before = last_turn(live, "s")["confidence"]
    correction = {"slope": 0.5, "offset": -1.0}
    live.put("/pools/default", {"calibration": correction})
    assert live.get("/pools/default")["calibration"] == correction
    (listed,) = (pool for pool in live.get("/pools")["pools"] if pool["name"] == "default")
    assert listed["calibration"] == correction
    wanted = pytest.approx(float(rescale(before, 0.5, -1.0)))
    assert last_turn(live, "t")["confidence"] == wanted
    assert live.post("/rank", context=CONTEXT, pool="default")["confidence"] == wanted
    live.put("/pools/default", {"calibration": None})
    assert last_turn(live, "u")["confidence"] == pytest.approx(before)


QUESTIONS = [f"question number {number}" for number in range(20)]


@pytest.fixture
def calibrate(live: Live, turnwise: Turnwise, tmp_path: Path) -> Callable[..., str]:
    """Run `turnwise calibrate` on dialogues of two turns; return what it prints, or its error."""

    def run(pairs: Sequence[tuple[str, str]], *options: str) -> str:
        dialogues = [
            {"id": str(number), "utterances": posts([("user", question), ("bot", reply)])}
            for number, (question, reply) in enumerate(pairs)
        ]
        file = write_lines(tmp_path / "said.jsonl", *dialogues)
        given = ("--pool", "default", "--data", file, "--url", live.url)
        ended = turnwise("calibrate", *given, *options)
        return ended.err if ended.status else ended.out

    return run


def best_reply(live: Live, question: str) -> tuple[str, float]:
    context = [{"speaker": "user", "text": question}]
    ranked = live.post("/rank", context=context, pool="default", top_k=1)
    return ranked["ranking"][0]["text"], ranked["confidence"]


RIGHT = sum(1 for place in range(8, len(QUESTIONS)) if place % 5)
"""Number of answers of `mostly_confident_ones` that are right."""


def mostly_confident_ones(live: Live) -> list[tuple[str, str]]:
    """Dialogues that agree with most of the more confident answers, and with none of the others."""
    answers = sorted((best_reply(live, q)[::-1], q) for q in QUESTIONS)
    return [
        (question, first if place >= 8 and place % 5 else "None of these.")
        for place, ((_, first), question) in enumerate(answers)
    ]


def test_calibrate_fits_the_pool_to_what_was_said(
    live: Live, calibrate: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate_command, "PRIOR_WEIGHT", (0.001, 0.001))
    pairs = mostly_confident_ones(live)
    said = calibrate(pairs)
    assert f"{len(QUESTIONS)} answers, {RIGHT} of them right" in said
    fitted = live.get("/pools/default")["calibration"]
    assert f"slope {fitted['slope']:.3f}, offset {fitted['offset']:.3f}" in said
    before, after = map(float, re.findall(r"\d\.\d{3}", said)[:2])
    assert after < before
    confidences = np.array([best_reply(live, q)[1] for q, _ in pairs])
    assert confidences.mean() == pytest.approx(RIGHT / len(QUESTIONS), abs=0.02)


def test_calibrate_stores_no_fit_that_does_not_help(
    live: Live, calibrate: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = mostly_confident_ones(live)
    monkeypatch.setattr(calibrate_command, "PRIOR_WEIGHT", (0.001, 0.001))
    first = calibrate(pairs)
    fitted = live.get("/pools/default")["calibration"]
    monkeypatch.setattr(calibrate_command, "PRIOR_WEIGHT", (1e9, 1e9))  # leaves the model's own
    said = calibrate(pairs)
    assert live.get("/pools/default")["calibration"] == fitted
    assert "nothing was changed" in said
    kept, refused = map(float, re.findall(r"\d\.\d{3}", said)[:2])
    assert kept < refused
    assert f"calibration error {refused:.3f} before" in first


def test_another_wording_of_the_right_answer_is_right(
    live: Live, calibrate: Callable[..., str]
) -> None:
    wordings = [
        {"id": f"w{number}", "text": reply, "group": "all", "metadata": {"intent": "all"}}
        for number, reply in enumerate(REPLIES)
    ]
    others = [
        {"id": f"o{number}", "text": f"Other {number}.", "metadata": {"intent": f"{number}"}}
        for number in range(3)
    ]
    live.make_pool("wordings", [*wordings, *others])
    contexts = [[{"speaker": "user", "text": question}] for question in QUESTIONS]
    answers = [live.post("/rank", context=each, pool="wordings", top_k=1) for each in contexts]
    firsts = [answer["ranking"][0]["text"] for answer in answers]
    right = sum(first in REPLIES for first in firsts)
    assert right > 0
    pairs = [(question, REPLIES[0]) for question in QUESTIONS]
    for options in ((), ("--same", "intent")):
        said = calibrate(pairs, "--pool", "wordings", *options)
        assert f"20 answers, {right} of them right" in said


def test_calibrate_refuses_what_it_cannot_fit(live: Live, calibrate: Callable[..., str]) -> None:
    pairs = [(question, "None of these.") for question in QUESTIONS[:3]]
    assert "3 answers; a calibration needs at least 10" in calibrate(pairs)
    assert "'helper' says no reply in the dialogues of bot, user" in calibrate(
        pairs, "--responder", "helper"
    )
    long = [("x" * 3000, "None of these.")]  # the service reads the beginning
    assert "2 answers; a calibration needs at least 10" in calibrate(long * 2)
    assert "at least two dialogues" in calibrate(long)
    live.fill(REPLIES[:1], pool="one")
    assert "have no confidence" in calibrate(pairs, "--pool", "one")
    assert live.get("/pools/default")["calibration"] is None


def test_calibrate_asks_with_as_much_of_a_context_as_the_service_reads() -> None:
    said = tuple(Utterance("AB"[n % 2], f"{n}") for n in range(6))
    replies = calibrate_command.find_replies([Dialogue(id, said) for id in "xy"], "B", 2000, 3)
    texts = [[turn.text for turn in reply.context] for reply in replies]
    assert texts == 2 * [["0"], ["0", "1", "2"], ["2", "3", "4"]]


def test_answers_that_are_right_where_they_are_less_confident_are_not_fitted(
    live: Live, calibrate: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate_command, "PRIOR_WEIGHT", (0.001, 0.001))
    answers = sorted((best_reply(live, q)[::-1], q) for q in QUESTIONS)
    pairs = [
        (q, first if n < 12 and n % 5 else "None.") for n, ((_, first), q) in enumerate(answers)
    ]
    assert "right answers are no more confident than wrong ones" in calibrate(pairs)
    assert live.get("/pools/default")["calibration"] is None
