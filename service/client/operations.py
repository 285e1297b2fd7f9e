"""Every operation of the service, as a call; `Client` and `AsyncClient` send the same ones."""

import secrets
from collections.abc import Sequence
from typing import Any, Unpack

from turnwise.service.client.calls import Call, operation, path
from turnwise.service.client.options import PlanOptions, RankOptions, ScoresOptions, TurnOptions
from turnwise.service.wire.fields import EncoderName, GivenTurn
from turnwise.service.wire.ops import Ready, Version
from turnwise.service.wire.planning import PlanAnswer, PlanGoal
from turnwise.service.wire.pools import Edited, PoolInfo, PoolList, SearchAnswer
from turnwise.service.wire.ranking import RankAnswer
from turnwise.service.wire.sessions import ScoreMatrix, Transcript, TurnAnswer, Undone


class ServiceOperations:
    """What needs no session."""

    @operation
    def rank(
        self, context: Sequence[GivenTurn], **options: Unpack[RankOptions]
    ) -> Call[RankAnswer]:
        """Rank candidates, given or of a pool, after utterances or toward goals."""
        return Call("POST", "/rank", RankAnswer, {"context": context, **options})

    @operation
    def plan(
        self,
        goals: Sequence[PlanGoal],
        context: Sequence[GivenTurn] | None = None,
        **options: Unpack[PlanOptions],
    ) -> Call[PlanAnswer]:
        """Put goals into the order in which a dialogue can reach them."""
        body = {"goals": goals, "context": context, **options}
        return Call("POST", "/plan", PlanAnswer, body)

    @operation
    def pools(self) -> Call[PoolList]:
        """Return what is known of each pool, by name."""
        return Call("GET", "/pools", PoolList)

    @operation
    def ready(self) -> Call[Ready]:
        """Return the checks, all passed; `UnavailableError` names those that did not."""
        return Call("GET", "/readyz", Ready)

    @operation
    def version(self) -> Call[Version]:
        """Return what runs: its version, its model, its limits."""
        return Call("GET", "/version", Version)


class SessionOperations:
    """What a conversation takes and tells.

    Attributes:
        id: Of the session.
    """

    id: str

    @operation
    def turn(
        self,
        speaker: str,
        text: str,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[TurnOptions],
    ) -> Call[TurnAnswer]:
        """Post an utterance, and return the best replies to it.

        It lands once, however often it is sent: again by the client, after a lost answer, or by
        you, with an `idempotency_key` of your own.
        """
        return Call(
            "POST",
            path("sessions", self.id, "turn"),
            TurnAnswer,
            {"speaker": speaker, "text": text, **options},
            headers={"Idempotency-Key": idempotency_key or secrets.token_urlsafe(16)},
        )

    @operation
    def rank(self, **options: Unpack[RankOptions]) -> Call[RankAnswer]:
        """Rank candidates, given or of a pool, as what is said next or toward goals."""
        return Call("POST", "/rank", RankAnswer, {"session_id": self.id, **options})

    @operation
    def plan(self, goals: Sequence[PlanGoal], **options: Unpack[PlanOptions]) -> Call[PlanAnswer]:
        """Put goals into the order in which this dialogue can reach them."""
        return Call("POST", "/plan", PlanAnswer, {"session_id": self.id, "goals": goals, **options})

    @operation
    def scores(self, ids: Sequence[str], **options: Unpack[ScoresOptions]) -> Call[ScoreMatrix]:
        """Return the running score matrix: an utterance a line, a candidate a column."""
        query: dict[str, Any] = {"ids": list(ids), **options}
        return Call("GET", path("sessions", self.id, "scores"), ScoreMatrix, query=query)

    @operation
    def open(self, responder: str) -> Call[Transcript]:
        """Say, before the first turn, who says the candidates, where that is not "bot"."""
        return Call("PUT", path("sessions", self.id), Transcript, {"responder": responder})

    @operation
    def transcript(self) -> Call[Transcript]:
        """Return what was said, by whom, and until when the session lives."""
        return Call("GET", path("sessions", self.id), Transcript)

    @operation
    def undo(self) -> Call[Undone]:
        """Take the last post back; not tried again where that might take two."""
        where = path("sessions", self.id, "turns", "last")
        return Call("DELETE", where, Undone, repeatable=False)

    @operation
    def delete(self) -> Call[None]:
        """Forget all of it."""
        return Call("DELETE", path("sessions", self.id), type(None), deletes=True)


class PoolOperations:
    """What a catalogue of candidates takes and tells.

    Attributes:
        name: Of the pool.
    """

    name: str

    @operation
    def create(self, description: str = "", encoder: EncoderName | None = None) -> Call[PoolInfo]:
        """Make the pool; one that is there keeps its candidates, and is described anew.

        Args:
            description: For people.
            encoder: What its candidates are encoded with, for good.
        """
        body = {"description": description, "encoder": encoder}
        return Call("PUT", path("pools", self.name), PoolInfo, body)

    @operation
    def info(self) -> Call[PoolInfo]:
        """Return its version, its size, how it is searched, and whether it is ready."""
        return Call("GET", path("pools", self.name), PoolInfo)

    @operation
    def search(self, text: str, top_k: int = 5) -> Call[SearchAnswer]:
        """Find the best replies to a text, as if it were all that was said."""
        body = {"text": text, "top_k": top_k}
        return Call("POST", path("pools", self.name, "search"), SearchAnswer, body)

    @operation
    def remove(self, candidate_id: str) -> Call[Edited]:
        """Delete one candidate, which makes a new version.

        It is not tried twice: of a lost answer nobody knows whether the candidate is gone.
        """
        where = path("pools", self.name, "candidates", candidate_id)
        return Call("DELETE", where, Edited, repeatable=False)

    @operation
    def delete(self) -> Call[None]:
        """Delete it with all its candidates."""
        return Call("DELETE", path("pools", self.name), type(None), deletes=True)
