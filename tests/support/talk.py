"""A client that goes on through faults: what it was told is what must be there in the end."""

import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.support.messages import REPLIES, scores
from tests.support.oracle import Oracle
from tests.support.service import Live
from tests.support.waiting import PATIENCE

UNAVAILABLE = {429, 503}


@dataclass(slots=True)
class Talk:
    """One conversation. A turn is sent again, with the same key, until it lands.

    Attributes:
        said: The turns that were acknowledged.
        refused: How often one was refused on the way.
    """

    session: str
    oracle: Oracle
    said: list[tuple[str, str]] = field(default_factory=list)
    refused: int = 0

    @staticmethod
    def text(number: int) -> str:
        """What is said at a turn, by either speaker in turn."""
        return f"This is number {number}." + " Yes." * (number % 2)

    @staticmethod
    def body(text: str) -> dict[str, Any]:
        """What says a text, always as the same speaker."""
        speaker = "bot" if len(text) % 2 else "user"
        every = {"respond": True, "top_k": len(REPLIES), "aggregation": "mean"}
        return {"speaker": speaker, "text": text, **every}

    def post(self, live: Live, text: str, *, key: str | None = None) -> httpx.Response:
        """Send a turn once; its key is its text where there is no other."""
        headers = {"Idempotency-Key": key or text.replace(" ", "-")}
        return live.http.post(
            f"/sessions/{self.session}/turn", json=self.body(text), headers=headers
        )

    def turn(self, *replicas: Live, text: str = "") -> dict[str, Any]:
        """Say something, to one replica after the other; check all that the answer tells."""
        text = text or self.text(len(self.said) + 1)
        end = time.monotonic() + PATIENCE
        while not (answer := self.post(replicas[0], text)).is_success:
            assert answer.status_code in UNAVAILABLE, answer.text
            assert int(answer.headers["Retry-After"]) >= 1
            assert time.monotonic() < end, answer.text
            self.refused += 1
            replicas = (*replicas[1:], replicas[0])
            time.sleep(0.02)
        return self.acknowledged(text, Live.ok(answer))

    def try_turn(self, live: Live, text: str) -> None:
        """Say something that may be refused."""
        answer = self.post(live, text)
        if answer.is_success:
            self.acknowledged(text, answer.json())
        else:
            assert answer.status_code in UNAVAILABLE, answer.text

    def acknowledged(self, text: str, answer: dict[str, Any]) -> dict[str, Any]:
        """Take a turn for said, and check its answer against the transcript from scratch."""
        self.said.append((self.body(text)["speaker"], text))
        assert answer["turn"] == len(self.said)
        naive = {reply: self.oracle.score(self.said, reply) for reply in REPLIES}
        assert scores(answer) == pytest.approx(naive, rel=2e-3, abs=2e-3)
        return answer

    def check(self, *replicas: Live) -> None:
        """Every replica tells, once it can, what was acknowledged, in order, and nothing else."""
        for live in replicas:
            told = Live.ok(self._read(live))["transcript"]
            assert [(post["speaker"], post["text"]) for post in told] == self.said

    def _read(self, live: Live) -> httpx.Response:
        end = time.monotonic() + PATIENCE
        while (answer := live.http.get(f"/sessions/{self.session}")).status_code in UNAVAILABLE:
            assert time.monotonic() < end, answer.text
            time.sleep(0.02)
        return answer
