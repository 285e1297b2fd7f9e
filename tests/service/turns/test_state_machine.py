"""Turns, retries, undos, deletions and faults in any order, against what must be true of them.

Three replicas, one of them with another encoder, share a Redis that is killed and comes back with
its append-only file. After each step the transcript is the model's, on every replica, and every
score that a turn answers is the transcript scored from scratch.
"""

import json
import time
from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.messages import REPLIES, scores
from tests.support.oracle import Oracle
from tests.support.redis_keys import session_key
from tests.support.redis_server import RedisServer
from tests.support.service import Launch, Live
from tests.support.waiting import PATIENCE, eventually
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.roles import EncoderKind
from turnwise.service.errors import StateUnavailable
from turnwise.service.sessions.store import ANSWERS_KEPT, Change, Session, SessionKey, SessionStore

SPEAKERS = st.sampled_from(["user", "bot", "agent"])
TEXTS = st.sampled_from(["Hello", "My parcel has not come.", "Let me look", "Thank you", "Yes, 17"])
AGGREGATIONS = st.sampled_from([("mean", 1), ("last_rows", 1), ("last_rows", 2), ("max_sim", 1)])
REPLICAS = st.integers(0, 2)

_NAMES = count()


class Conversation(RuleBasedStateMachine):
    replicas: ClassVar[list[Live]]
    redis: ClassVar[RedisServer]
    oracles: ClassVar[list[Oracle]]

    def __init__(self) -> None:
        super().__init__()
        self.name = f"s{next(_NAMES)}"
        self.said: list[tuple[str, str]] = []
        self.answered: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}

    @property
    def path(self) -> str:
        return f"/sessions/{self.name}"

    @rule(replica=REPLICAS, speaker=SPEAKERS, text=TEXTS, aggregation=AGGREGATIONS)
    def turn(self, replica: int, speaker: str, text: str, aggregation: tuple[str, int]) -> None:
        self._turn(replica, speaker, text, aggregation)

    @rule(replica=REPLICAS, speaker=SPEAKERS, text=TEXTS)
    def turn_whose_commit_was_not_heard_of(self, replica: int, speaker: str, text: str) -> None:
        with commit_lost():
            self._turn(replica, speaker, text, ("mean", 1))

    @precondition(lambda self: self.answered)
    @rule(replica=REPLICAS, data=st.data())
    def retry(self, replica: int, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.answered)))
        body, first = self.answered[key]
        again = Live.ok(self._post(self.replicas[replica], body, key))
        assert again["replayed"]
        assert (again["turn"], again["candidates"]) == (first["turn"], first["candidates"])
        other = self._post(self.replicas[replica], body | {"text": "Something else"}, key)
        assert other.status_code == 422

    @rule(replica=REPLICAS)
    def turn_out_of_order(self, replica: int) -> None:
        body = {"speaker": "user", "text": "Late", "expected_turn": len(self.said) + 2}
        assert self._post(self.replicas[replica], body, "late").status_code == 409

    @rule(replica=REPLICAS)
    def undo(self, replica: int) -> None:
        answer = self.replicas[replica].http.delete(f"{self.path}/turns/last")
        if self.said:
            speaker, text = self.said.pop()
            removed = Live.ok(answer)["removed"]
            assert (removed["speaker"], removed["text"]) == (speaker, text)
            self.answered = {
                key: (body, found)
                for key, (body, found) in self.answered.items()
                if found["turn"] <= len(self.said)  # the key of what is undone is free again
            }
        else:
            assert answer.status_code in {404, 409}

    @rule(replica=REPLICAS)
    def delete(self, replica: int) -> None:
        self.replicas[replica].http.delete(self.path)
        self.said = []
        self.answered = {}

    @rule(part=st.sampled_from(["first", "second", "other_first", "other_second"]))
    def lose_vectors(self, part: str) -> None:
        self.redis.command("UNLINK", session_key("default", self.name, part))

    @rule()
    def lose_rows(self) -> None:
        self.redis.command("HDEL", session_key("default", self.name, "meta"), "rows", "rows_of")

    @rule()
    def lose_scripts(self) -> None:
        self.redis.command("SCRIPT", "FLUSH")

    @rule()
    def crash_redis(self) -> None:
        self.redis.kill()
        for replica in self.replicas:
            body = {"speaker": "user", "text": "Anyone?"}
            assert self._post(replica, body, "away").status_code == 503
        self.redis.start()

    @invariant()
    def every_replica_tells_the_transcript(self) -> None:
        for replica in self.replicas:
            answer = replica.http.get(self.path)
            if answer.status_code == 404:
                assert not self.said
            else:
                told = [(post["speaker"], post["text"]) for post in Live.ok(answer)["transcript"]]
                assert told == self.said

    def _turn(self, replica: int, speaker: str, text: str, aggregation: tuple[str, int]) -> None:
        live = self.replicas[replica]
        oracle = self.oracles[replica]
        (name, last_rows) = aggregation
        body = {
            "speaker": speaker,
            "text": text,
            "respond": True,
            "top_k": len(REPLIES),
            "aggregation": name,
            "last_rows": last_rows,
            "expected_turn": len(self.said) + 1,
        }
        key = f"key-{next(_NAMES)}"
        end = time.monotonic() + PATIENCE
        # It may have landed or not: the same request settles it.
        while (answer := self._post(live, body, key)).status_code == 503:
            assert time.monotonic() < end
        found = Live.ok(answer)
        self.said.append((speaker, text))
        assert found["turn"] == len(self.said)
        self.answered[key] = body, found
        self.answered = dict(list(self.answered.items())[-ANSWERS_KEPT:])
        naive = {text: self._naive(oracle, text, name, last_rows) for text in REPLIES}
        assert scores(found) == pytest.approx(naive, rel=2e-3, abs=2e-3)

    def _naive(self, oracle: Oracle, text: str, name: str, last_rows: int) -> float:
        if name == "max_sim":
            return oracle.max_sim(self.said, text)
        return oracle.score(self.said, text, last_rows if name == "last_rows" else None)

    def _post(self, live: Live, body: dict[str, Any], key: str) -> httpx.Response:
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        return live.http.post(f"{self.path}/turn", content=json.dumps(body), headers=headers)


class commit_lost:  # noqa: N801 - used as a function
    """The next commit lands, and the connection breaks before the replica hears of it."""

    def __enter__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        commit = SessionStore.commit

        async def unheard(
            sessions: SessionStore, session: SessionKey, base: Session | None, change: Change
        ) -> bool:
            self._patch.undo()
            await commit(sessions, session, base, change)
            raise StateUnavailable("the connection broke")

        self._patch.setattr(SessionStore, "commit", unheard)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


@pytest.mark.parametrize("examples", [2, pytest.param(10, marks=pytest.mark.nightly)])
def test_whatever_happens_no_turn_is_lost_or_doubled(
    launch: Launch,
    lasting_redis: RedisServer,
    tiny_encoder: Callable[[EncoderKind], UtteranceEncoder],
    model_of: Callable[[EncoderKind], dict[str, object]],
    examples: int,
) -> None:
    kinds = [EncoderKind.TRIPLE, EncoderKind.TRIPLE, EncoderKind.HEADS]
    replicas = [launch(redis_url=lasting_redis.url, **model_of(kind)) for kind in kinds]
    replicas[0].fill()
    for other in replicas[1:]:
        eventually(lambda: other.http.get("/pools/default").json().get("state") == "ready")  # noqa: B023
    Conversation.replicas = replicas
    Conversation.redis = lasting_redis
    Conversation.oracles = [Oracle(tiny_encoder(kind)) for kind in kinds]
    run_state_machine_as_test(
        Conversation,
        settings=settings(
            max_examples=examples,
            stateful_step_count=15,
            suppress_health_check=list(HealthCheck),
        ),
    )
