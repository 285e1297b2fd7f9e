"""Retries of a turn: a repeated `Idempotency-Key` gets the first answer again."""

import hashlib
from typing import NamedTuple, Self

from turnwise.service.current_request import reads_learned
from turnwise.service.errors import IdempotencyMismatch
from turnwise.service.sessions.store import Answered
from turnwise.service.wire.pools import Matched, Selected
from turnwise.service.wire.sessions import TurnAnswer, TurnRequest


class Retry(NamedTuple):
    """Digests of an idempotency key and of the request that came with it."""

    key: str
    body: str

    @classmethod
    def of(cls, key: str, request: TurnRequest) -> Self:
        """Return the digests of a turn that came with a key."""
        # Defaults are left out here and unknown fields are ignored below: during a rolling update
        # a retry may reach a release with more fields, or fewer.
        return cls(_digest(key), _digest(request.model_dump_json(exclude_defaults=True)))

    def keep(self, answer: TurnAnswer) -> Answered:
        """Return an answer as a session keeps it, to replay it later."""
        return Answered(self.key, self.body, answer.model_dump_json())

    def replay(self, answered: Answered) -> TurnAnswer:
        """Return the answer that a session keeps.

        Raises:
            IdempotencyMismatch: The earlier request with this key had another body.
        """
        if answered.body != self.body:
            raise IdempotencyMismatch("an earlier request with this key had another body")
        answer = TurnAnswer.model_validate_json(answered.answer, extra="ignore")
        candidates = answer.candidates
        if not reads_learned.get():  # another caller, who may read them, had the first answer
            candidates = [_hide_learned(each) for each in candidates]
        return answer.model_copy(update={"candidates": candidates, "replayed": True})


def _hide_learned(candidate: Selected) -> Selected:
    if candidate.matched is None or not candidate.matched.learned:
        return candidate
    return candidate.model_copy(update={"matched": Matched(learned=True)})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
