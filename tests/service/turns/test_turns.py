import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis as blocking

from tests.support.messages import DIALOGUE, REPLIES, Said, problem, scores, wrong
from tests.support.oracle import Oracle
from tests.support.redis_keys import session_key
from tests.support.service import Launch, Live, with_and_without_heads
from tests.support.waiting import PATIENCE, eventually
from turnwise.models.card import CARD
from turnwise.models.roles import EncoderKind
from turnwise.service.selection.idle import IdleEncoding
from turnwise.service.sessions.store import SessionKey, SessionStore

ALL = len(REPLIES)


def expected(
    oracle: Oracle, said: Said, aggregation: str = "mean", last_rows: int = 1
) -> dict[str, float]:
    if aggregation == "max_sim":
        return {text: oracle.max_sim(said, text) for text in REPLIES}
    rows = last_rows if aggregation == "last_rows" else None
    return {text: oracle.score(said, text, rows) for text in REPLIES}


@with_and_without_heads
@pytest.mark.parametrize(
    ("aggregation", "last_rows"), [("mean", 1), ("last_rows", 2), ("max_sim", 1)]
)
def test_scores_and_contributions_are_the_papers_after_every_turn(
    live: Live, oracle: Oracle, aggregation: str, last_rows: int
) -> None:
    asked = {"aggregation": aggregation, "last_rows": last_rows, "top_k": ALL, "respond": True}
    utterances = {1: 1, 4: 3, 6: 5}  # the speaker of the third turn goes on in the fourth
    for count, (speaker, text) in enumerate(DIALOGUE, 1):
        answer = live.turn("s", speaker, text, **asked, explain=count in utterances)
        naive = expected(oracle, DIALOGUE[:count], aggregation, last_rows)
        assert scores(answer) == pytest.approx(naive, abs=1e-3)
        for candidate in answer["candidates"] if count in utterances else ():
            assert len(candidate["contributions"]) == utterances[count]
            assert sum(candidate["contributions"]) == pytest.approx(candidate["score"], abs=1e-3)


def test_what_the_request_leaves_out_says_the_models_card(
    launch: Launch,
    oracle: Oracle,
    tmp_path: Path,
    tiny_encoder_folder: Callable[[EncoderKind], Path],
) -> None:
    model = Path(shutil.copytree(tiny_encoder_folder(EncoderKind.TRIPLE), tmp_path / "model"))
    (model / CARD).write_text('{"aggregation": {"name": "last_rows", "last_rows": 1}}')
    live = launch(model=str(model))
    live.fill()
    answer = live.say("s", DIALOGUE[:5], respond=True, top_k=ALL)
    wanted = expected(oracle, DIALOGUE[:5], "last_rows", 1)
    assert scores(answer) == pytest.approx(wanted, abs=1e-3)


def test_a_turn_of_the_responder_returns_candidates_only_on_request(live: Live) -> None:
    live.turn("s", "user", "Hello")
    quiet = live.turn("s", "bot", "Hi, how can I help?")
    assert quiet["candidates"] == []
    assert quiet["pool"] is None
    assert live.turn("s", "bot", "Are you there?", respond=True)["candidates"]
    assert live.turn("s", "user", "Yes", respond=False)["candidates"] == []


def test_another_responder_is_fixed_before_the_first_turn(live: Live, oracle: Oracle) -> None:
    put = live.http.put("/sessions/s", json={"responder": "agent"})
    assert put.is_success
    assert put.json()["turns"] == 0
    said = [("guest", "Hello"), ("agent", "Welcome!"), ("guest", "A room, please.")]
    assert live.say("s", said[:2])["candidates"] == []
    answer = live.turn("s", *said[2], top_k=ALL, aggregation="mean")
    naive = {text: oracle.score(said, text, target="agent") for text in REPLIES}
    assert scores(answer) == pytest.approx(naive, abs=1e-3)
    assert live.http.put("/sessions/s", json={"responder": "agent"}).is_success
    late = live.http.put("/sessions/s", json={"responder": "guest"})
    assert problem(late) == (409, "session-started")


@with_and_without_heads
def test_undo_takes_the_last_post_back_as_if_it_had_never_been(live: Live, oracle: Oracle) -> None:
    live.say("s", DIALOGUE[:4])
    undone = live.delete("/sessions/s/turns/last")
    assert (undone["turn"], undone["removed"]["text"]) == (3, DIALOGUE[3][1])
    answer = live.say("s", DIALOGUE[4:], top_k=ALL, respond=True, aggregation="mean")
    said = [*DIALOGUE[:3], *DIALOGUE[4:]]
    assert scores(answer) == pytest.approx(expected(oracle, said), abs=1e-3)


def test_undo_goes_back_to_the_empty_session_and_no_further(live: Live) -> None:
    live.turn("s", "user", "Hello")
    assert live.http.delete("/sessions/s/turns/last").json()["turn"] == 0
    assert live.http.delete("/sessions/s/turns/last").status_code == 409
    assert live.get("/sessions/s")["turns"] == 0
    assert live.turn("s", "user", "Hello again")["turn"] == 1


def test_an_undo_that_another_one_overtakes_takes_back_the_post_before(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.say("s", DIALOGUE)
    commit = SessionStore.commit
    overtaken = list[int | None]()

    async def commit_second(store: SessionStore, *change: Any) -> int | None:
        if not overtaken:
            overtaken.append(await commit(store, *change))
        return await commit(store, *change)

    monkeypatch.setattr(SessionStore, "commit", commit_second)
    undone = live.delete("/sessions/s/turns/last")
    assert overtaken != [None]
    assert (undone["turn"], undone["removed"]["text"]) == (4, DIALOGUE[4][1])
    assert live.get("/sessions/s")["turns"] == 4


@with_and_without_heads
def test_a_long_session_that_must_be_encoded_again_scores_as_before(
    live: Live, oracle: Oracle
) -> None:
    said = [("user" if n % 2 else "bot", f"Sentence {n} of {live.namespace}.") for n in range(17)]
    asked = {"aggregation": "mean", "top_k": ALL, "respond": True}
    live.say("s", said[:-1], respond=False)
    with blocking.Redis.from_url(live.redis_url) as redis:  # as if it had lost all but the posts
        meta, first, second = SessionKey(live.namespace, "s").keys("meta", "first", "second")
        redis.delete(first, second)
        redis.hdel(meta, "rows", "rows_of")
    answer = live.turn("s", *said[-1], **asked)
    assert scores(answer) == pytest.approx(expected(oracle, said), rel=2e-3)
    goal = ("user", "Thank you")
    goals = [{"speaker": goal[0], "text": goal[1]}]
    toward = live.post("/rank", session_id="s", candidates=REPLIES, goals=goals)
    reached = {text: oracle.reachability(said, ("bot", text), goal) for text in REPLIES}
    assert scores(toward) == pytest.approx(reached, abs=2e-3)


@with_and_without_heads
@pytest.mark.parametrize("aggregation", ["mean", "max_sim"])
def test_the_score_matrix_has_the_best_candidates_of_the_pool(
    live: Live, oracle: Oracle, aggregation: str
) -> None:
    live.say("s", DIALOGUE)
    matrix = live.get("/sessions/s/scores", aggregation=aggregation, top_k=3)
    by_query = expected(oracle, DIALOGUE)
    best = [f"r{n}" for n in sorted(range(ALL), key=lambda n: -by_query[REPLIES[n]])]
    assert matrix["ids"] == best[:3]
    for turn, line in zip(matrix["turns"], matrix["scores"], strict=True):
        after = expected(oracle, DIALOGUE[:turn], aggregation)
        assert line == pytest.approx([after[REPLIES[int(i[1:])]] for i in best[:3]], abs=1e-3)


def test_a_session_without_an_utterance_has_an_empty_score_matrix(live: Live) -> None:
    live.http.put("/sessions/new", json={})
    matrix = live.get("/sessions/new/scores")
    assert (matrix["ids"], matrix["turns"], matrix["scores"]) == ([], [], [])


def test_the_score_matrix_names_what_is_not_there(live: Live) -> None:
    live.turn("s", "user", "Hello")
    unknown = live.http.get("/sessions/s/scores", params={"ids": "nobody"})
    assert problem(unknown) == (404, "candidate-not-found")
    nobodys = live.http.get("/sessions/none/scores", params={"ids": "r1"})
    assert problem(nobodys) == (404, "session-not-found")


def test_the_critical_path_of_a_turn_encodes_one_text(own: Live) -> None:
    written = own.written()
    idle = own.increase("turnwise_encoded_texts_total", role="first", lane="idle")
    said = [("user", "One"), ("bot", "Two"), ("user", "Three"), ("bot", "Four")]
    for turns, (speaker, text) in enumerate(said, 1):
        encoded = own.encoded()
        own.turn("s", speaker, text)
        assert encoded() == {"second": 1}
        eventually(lambda done=turns: written() == done)
        assert idle() == turns


def test_a_service_that_stops_finishes_its_idle_work(
    monkeypatch: pytest.MonkeyPatch, launch: Launch
) -> None:
    slow = partial(IdleEncoding, delay=0.5, patience=PATIENCE)
    monkeypatch.setattr("turnwise.service.app.wiring.IdleEncoding", slow)
    own = launch()
    own.fill()
    own.turn("s", "user", "One")
    first = session_key(own.namespace, "s", "first")
    with blocking.Redis.from_url(own.redis_url) as redis:
        own.stop()
        assert redis.llen(first) == 1


def test_the_hard_maximum_of_turns(launch: Launch) -> None:
    live = launch(max_turns=2)
    live.fill()
    live.say("s", DIALOGUE[:2])
    for commits in (True, False):
        assert problem(live.try_turn("More", commit=commits)) == (409, "session-full")
    assert live.get("/sessions/s")["turns"] == 2


def test_a_pool_that_is_not_there_leaves_the_session_as_it_was(live: Live) -> None:
    assert problem(live.try_turn(pool="none")) == (404, "pool-not-found")
    assert live.http.get("/sessions/s").status_code == 404


def test_a_default_pool_whose_filling_was_broken_off_is_filled(
    launch: Launch, tmp_path: Path
) -> None:
    file = tmp_path / "replies.jsonl"
    file.write_text('{"text": "Good morning"}\n')
    broken_off = launch()
    broken_off.put("/pools/default", {})
    live = launch(default_pool=file)
    assert live.turn("s", "user", "Hello")["candidates"][0]["text"] == "Good morning"
    live.fill()
    again = launch(default_pool=file)
    eventually(lambda: again.ready)
    assert again.get("/pools/default")["size"] == 1 + len(REPLIES)


def test_a_model_without_a_calibration_has_no_confidence(live: Live) -> None:
    answer = live.turn("s", "user", "Hello")
    assert (answer["confidence"], answer["abstained"]) == (None, False)
    assert wrong(live.try_turn(min_confidence=0.5)) == [["body", "min_confidence"]]


def test_two_clients_on_one_session_both_land(live: Live, oracle: Oracle) -> None:
    def post(number: int) -> dict[str, Any]:
        return live.turn("s", f"guest-{number % 2}", f"Sentence {number}")

    operations = partial(live.increase, "turnwise_redis_operations_total")
    read = operations(operation="session_read", result="ok")
    lost = operations(operation="session_write", result="conflict")
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(post, range(16)))
    assert sorted(answer["turn"] for answer in answers) == list(range(1, 17))
    assert (read(), lost()) == (16, 0)  # they wait for each other, and none works in vain
    posts = live.get("/sessions/s")["transcript"]
    said = [(post["speaker"], post["text"]) for post in posts]
    assert sorted(said) == sorted((f"guest-{n % 2}", f"Sentence {n}") for n in range(16))
    final = live.turn("s", "bot", "Thanks", respond=True, aggregation="mean", top_k=ALL)
    naive = expected(oracle, [*said, ("bot", "Thanks")])
    assert scores(final) == pytest.approx(naive, rel=2e-4)  # float16 vectors, sums of 35
