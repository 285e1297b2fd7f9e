"""Replicas with different models share sessions, as while the model of a service changes."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.service.live.conftest import REPLIES, Launch, Live, Oracle, scores
from tests.waiting import eventually
from turnwise.models.encoder import UtteranceEncoder
from turnwise.models.roles import EncoderKind, Role


class Replica(NamedTuple):
    live: Live
    oracle: Oracle

    def turn(self, session: str, said: list[tuple[str, str]]) -> float:
        """Post the newest turn; return how many texts it needed, of the encoder or its cache."""
        before = self._texts()
        every = {"aggregation": "mean", "top_k": len(REPLIES), "respond": True}
        answer = self.live.turn(session, *said[-1], **every)
        assert answer["turn"] == len(said)
        naive = {text: self.oracle.score(said, text) for text in REPLIES}
        assert scores(answer) == pytest.approx(naive, rel=2e-3, abs=2e-3)
        return self._texts() - before

    def _texts(self) -> float:
        value = self.live.services.metrics.registry.get_sample_value
        waited = [{"role": role, "lane": "critical"} for role in Role]
        encoded = [value("turnwise_encoded_texts_total", labels) for labels in waited]
        return sum(filter(None, [*encoded, value("turnwise_vector_cache_hits_total")]))


def test_replicas_with_two_models_encode_only_the_newest_utterances(
    launch: Launch,
    tiny_encoder: Callable[[EncoderKind], UtteranceEncoder],
    model_of: Callable[[EncoderKind], dict[str, object]],
) -> None:
    old, new = (
        Replica(launch(**model_of(kind)), Oracle(tiny_encoder(kind)))
        for kind in (EncoderKind.TRIPLE, EncoderKind.HEADS)
    )
    old.live.fill()
    eventually(lambda: new.live.http.get("/pools/default").json().get("state") == "ready")
    check_dialogue("update", old, new)
    check_dialogue("rollback", new, old)


def check_dialogue(session: str, begins: Replica, other: Replica) -> None:
    """Two replicas take turns in a session; an utterance is encoded at most once in two roles.

    For the next turn, [B1] may be found in the cache of vectors, which counts as well.
    """
    said: list[tuple[str, str]] = []

    def turn(replica: Replica, speaker: str) -> float:
        said.append((speaker, f"This is sentence {len(said)} of {session}."))
        return replica.turn(session, said)

    for speaker in ("user", "bot", "user", "bot"):
        turn(begins, speaker)
    turn(other, "user")  # it has no vectors yet
    for replica, speaker in ((begins, "bot"), (other, "user"), (begins, "bot"), (other, "user")):
        assert turn(replica, speaker) <= 3 * 2
    for replica in (begins, other):  # turns of one speaker are one utterance
        assert turn(replica, "user") <= 3 * 2
    assert begins.live.http.delete(f"/sessions/{session}/turns/last").is_success
    said.pop()
    for replica, speaker in ((other, "bot"), (begins, "user"), (begins, "bot"), (begins, "user")):
        assert turn(replica, speaker) <= 3 * 3
    assert turn(other, "bot") <= 3 * 4
