"""Every operation of the service, written once as a call for both clients.

The keyword arguments of calls are typed dictionaries. Arguments left out are not sent.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from turnwise.service.client.calls import Call, make_path, operation
from turnwise.service.wire.fields import (
    AggregationName,
    EncoderName,
    GivenTurn,
    Repeat,
    Rerank,
    StoreName,
    Wordings,
)
from turnwise.service.wire.filters import Where
from turnwise.service.wire.ops import Ready, Version
from turnwise.service.wire.planning import PlanAnswer, PlanGoal
from turnwise.service.wire.pools import (
    CandidatePage,
    Edited,
    LearnedList,
    LearnFrom,
    PoolCalibration,
    PoolCandidate,
    PoolInfo,
    PoolList,
    Removed,
    SearchAnswer,
    Unlearned,
)
from turnwise.service.wire.ranking import Avoided, GivenCandidate, Goal, RankAnswer
from turnwise.service.wire.reranking import RerankAnswer
from turnwise.service.wire.sessions import (
    Feedback,
    FeedbackEvent,
    ScoreMatrix,
    SessionsDeleted,
    SessionsPage,
    Transcript,
    TurnAnswer,
    Undone,
)


class AggregationOptions(TypedDict, total=False):
    """The aggregation of the context; by default that of the model card."""

    aggregation: AggregationName
    last_rows: int


class TurnOptions(AggregationOptions, total=False):
    """Options of a turn; `wire.sessions.TurnRequest` describes them."""

    candidate: str
    pool: str
    top_k: int
    rerank: Rerank | None
    where: Where
    slots: Mapping[str, str]
    repeat: Repeat
    wordings: Wordings
    exclude: Sequence[str]
    diversity: float
    min_confidence: float
    respond: bool
    explain: bool
    expected_turn: int
    commit: bool
    """False for a preview: the session stays as it is, and `turn` of the answer is None."""


class SessionOptions(TypedDict, total=False):
    """Settings of a session; `wire.sessions.SessionRequest` describes them."""

    where: Where | None
    """None removes the filter."""
    slots: Mapping[str, str] | None
    """None removes the values."""


class PoolOptions(TypedDict, total=False):
    """Settings of a pool; `wire.pools.PoolRequest` describes them."""

    store: StoreName
    """Where its candidates are; it cannot change later."""
    min_confidence: float | None
    """None removes it."""
    calibration: PoolCalibration | None
    """None removes it."""
    learn: LearnFrom | None
    """None: only feedback that says so teaches."""
    fallback: str | None
    """None removes it."""


class CandidateFields(TypedDict, total=False):
    """Fields of a candidate; `wire.pools.CandidateChange` describes them."""

    text: str
    metadata: dict[str, Any]
    examples: Sequence[str]
    add_examples: Sequence[str]
    remove_examples: Sequence[str]
    group: str | None
    """None makes the candidate an answer of its own."""
    body: str | None
    """None removes it."""


class RankOptions(AggregationOptions, total=False):
    """Options of a ranking, with `candidates` or `pool`; see `wire.ranking.RankRequest`."""

    candidates: Sequence[str | GivenCandidate]
    pool: str
    where: Where
    slots: Mapping[str, str]
    repeat: Repeat
    wordings: Wordings
    diversity: float
    goals: Sequence[Goal]
    avoid: Sequence[Avoided]
    fit_weight: float
    rerank: Rerank | None
    top_k: int
    explain: bool


class RerankOptions(TypedDict, total=False):
    """Options of ordering documents; `wire.reranking.RerankRequest` describes them."""

    top_n: int
    return_documents: bool


class ScoresOptions(TypedDict, total=False):
    """Options of a score matrix; `wire.sessions.ScoresQuery` describes them."""

    aggregation: Literal["mean", "last_rows", "max_sim"]
    last_rows: int
    pool: str
    top_k: int


class PlanOptions(TypedDict, total=False):
    """Options of planning; `wire.planning.PlanRequest` describes them."""

    method: Literal["chain", "chain_curved", "greedy", "iec", "iec_cu", "gc"]
    top: int


class ServiceOperations:
    """Operations of the service that name no session or pool in their path."""

    @operation
    def rank(
        self, context: Sequence[GivenTurn], **options: Unpack[RankOptions]
    ) -> Call[RankAnswer]:
        """Rank given candidates or those of a pool, by context or toward goals."""
        return Call("POST", "/rank", RankAnswer, {"context": context, **options})

    @operation
    def rerank(
        self, query: str, documents: Sequence[str], **options: Unpack[RerankOptions]
    ) -> Call[RerankAnswer]:
        """Rank documents after a query: by the cross-encoder, or without one by the encoder."""
        body = {"query": query, "documents": documents, **options}
        return Call("POST", "/v1/rerank", RerankAnswer, body)

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
        """Return the pools, sorted by name."""
        return Call("GET", "/pools", PoolList)

    @operation
    def sessions(self, prefix: str | None = None, cursor: str | None = None) -> Call[SessionsPage]:
        """Return a page of the ids of sessions, in no order; needs the scope `admin`.

        Args:
            prefix: The beginning of the ids; by default all.
            cursor: The cursor that the page before returned.
        """
        return Call(
            "GET", "/sessions", SessionsPage, query=_leave_out_none(prefix=prefix, cursor=cursor)
        )

    @operation
    def delete_sessions(
        self, prefix: str, cursor: str | None = None, *, learned: bool = False
    ) -> Call[SessionsDeleted]:
        """Delete some of the sessions whose ids begin with a prefix; needs the scope `admin`.

        Call it again with the `cursor` that it returns until that is None. A retry by the client
        does not count the sessions that an attempt without an answer deleted.

        Args:
            prefix: The beginning of the ids.
            cursor: The cursor that the call before returned.
            learned: Whether the last call also removes what candidates learned from them.
        """
        query = _leave_out_none(prefix=prefix, cursor=cursor, learned="true" if learned else None)
        return Call("DELETE", "/sessions", SessionsDeleted, query=query)

    @operation
    def ready(self) -> Call[Ready]:
        """Return the readiness checks; raise `UnavailableError` with those that failed."""
        return Call("GET", "/readyz", Ready)

    @operation
    def version(self) -> Call[Version]:
        """Return the version, the model and the limits of the service."""
        return Call("GET", "/version", Version)


class SessionOperations:
    """Operations of a session.

    Attributes:
        id: The session's id.
    """

    id: str

    @operation
    def turn(
        self,
        speaker: str,
        text: str | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[TurnOptions],
    ) -> Call[TurnAnswer]:
        """Post a turn and return the best candidates.

        A turn of the responder may name the `candidate` that it said; then `text` is optional.
        Retries by the client do not post it twice. If you retry yourself, pass the same
        `idempotency_key` each time.
        """
        return Call(
            "POST",
            make_path("sessions", self.id, "turn"),
            TurnAnswer,
            {"speaker": speaker, "text": text, **options},
            headers={"Idempotency-Key": idempotency_key or secrets.token_urlsafe(16)},
        )

    @operation
    def rank(self, **options: Unpack[RankOptions]) -> Call[RankAnswer]:
        """Rank given candidates or those of a pool, after this session or toward goals."""
        return Call("POST", "/rank", RankAnswer, {"session_id": self.id, **options})

    @operation
    def plan(self, goals: Sequence[PlanGoal], **options: Unpack[PlanOptions]) -> Call[PlanAnswer]:
        """Put goals into the order in which this dialogue can reach them."""
        return Call("POST", "/plan", PlanAnswer, {"session_id": self.id, "goals": goals, **options})

    @operation
    def scores(
        self, ids: Sequence[str] = (), **options: Unpack[ScoresOptions]
    ) -> Call[ScoreMatrix]:
        """Return the score matrix: a row per utterance, a column per candidate.

        Without ids, the columns are the best candidates of the pool.
        """
        query: dict[str, Any] = {"ids": list(ids), **options}
        return Call("GET", make_path("sessions", self.id, "scores"), ScoreMatrix, query=query)

    @operation
    def open(
        self, responder: str | None = None, **options: Unpack[SessionOptions]
    ) -> Call[Transcript]:
        """Set the responder before the first turn, or the filter.

        Only a responder that is neither "bot" nor "assistant" needs this.
        """
        body = options | ({"responder": responder} if responder else {})
        return Call("PUT", make_path("sessions", self.id), Transcript, body)

    @operation
    def transcript(self) -> Call[Transcript]:
        """Return the turns with their speakers, and when the session expires."""
        return Call("GET", make_path("sessions", self.id), Transcript)

    @operation
    def feedback(
        self,
        turn: int,
        candidate: str,
        event: FeedbackEvent,
        text: str | None = None,
        *,
        learn: bool | None = None,
    ) -> Call[Feedback]:
        """Say what became of a candidate; the same event again changes nothing.

        Args:
            turn: The turn whose answer offered the candidate.
            candidate: The candidate's id.
            event: See `wire.sessions.FeedbackRequest`.
            text: The reply that an edit made of it.
            learn: Whether the candidate learns the utterance before; None for the pool's setting.
        """
        path = make_path("sessions", self.id, "turns", str(turn), "feedback")
        body: dict[str, Any] = {"candidate": candidate, "event": event, "text": text}
        if learn is not None:
            body["learn"] = learn
        return Call("POST", path, Feedback, body)

    @operation
    def undo(self) -> Call[Undone]:
        """Undo the last turn. The call is not repeated, because two calls could undo two turns."""
        path = make_path("sessions", self.id, "turns", "last")
        return Call("DELETE", path, Undone, repeatable=False)

    @operation
    def delete(self) -> Call[None]:
        """Delete the session."""
        return Call("DELETE", make_path("sessions", self.id), type(None), deletes=True)


class PoolOperations:
    """Operations of a pool.

    Attributes:
        name: The pool's name.
    """

    name: str

    @operation
    def create(
        self,
        description: str | None = None,
        encoder: EncoderName | None = None,
        **options: Unpack[PoolOptions],
    ) -> Call[PoolInfo]:
        """Create the pool, or change the settings of one that exists.

        Args:
            description: A text for people.
            encoder: The encoder of its candidates; it cannot change later.
            options: Other settings. Those that are left out stay as they are.
        """
        named = {"description": description, "encoder": encoder}
        given = {name: value for name, value in named.items() if value is not None}
        return Call("PUT", make_path("pools", self.name), PoolInfo, given | options)

    @operation
    def info(self) -> Call[PoolInfo]:
        """Return its version, size and index, and whether it is ready."""
        return Call("GET", make_path("pools", self.name), PoolInfo)

    @operation
    def search(
        self,
        text: str,
        top_k: int = 5,
        where: Where | None = None,
        slots: Mapping[str, str] | None = None,
    ) -> Call[SearchAnswer]:
        """Return the best candidates with a text as the whole context."""
        body: dict[str, object] = {"text": text, "top_k": top_k, "where": where}
        if slots:
            body["slots"] = slots
        return Call("POST", make_path("pools", self.name, "search"), SearchAnswer, body)

    @operation
    def candidates(
        self,
        words: str | None = None,
        where: Where | None = None,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Call[CandidatePage]:
        """Return a page of the candidates that match, sorted by id.

        Args:
            words: A part of the text, of an example or of the id.
            where: A filter of the metadata.
            limit: Most candidates of the page, up to 500.
            cursor: The cursor that the page before returned.
        """
        filtered = None if where is None else json.dumps(where)
        query = _leave_out_none(q=words, where=filtered, cursor=cursor, limit=str(limit))
        return Call("GET", make_path("pools", self.name, "candidates"), CandidatePage, query=query)

    @operation
    def candidate(self, candidate_id: str) -> Call[PoolCandidate]:
        """Return one candidate, with its examples and those that it has learned."""
        return Call("GET", make_path("pools", self.name, "candidates", candidate_id), PoolCandidate)

    @operation
    def change(self, candidate_id: str, **fields: Unpack[CandidateFields]) -> Call[Edited]:
        """Change some fields of one candidate. Fields that are left out stay as they are."""
        path = make_path("pools", self.name, "candidates", candidate_id)
        return Call("PATCH", path, Edited, fields)

    @operation
    def remove(self, candidate_id: str) -> Call[Edited]:
        """Delete one candidate. This makes a new version.

        There is no retry after a lost answer: the candidate may be deleted already.
        """
        path = make_path("pools", self.name, "candidates", candidate_id)
        return Call("DELETE", path, Edited, repeatable=False)

    @operation
    def remove_many(self, candidate_ids: Sequence[str]) -> Call[Removed]:
        """Delete candidates in one new version; ids that the pool lacks are only counted."""
        path = make_path("pools", self.name, "candidates", "delete")
        return Call("POST", path, Removed, {"ids": list(candidate_ids)})

    @operation
    def learned(self, candidate_id: str | None = None) -> Call[LearnedList]:
        """Return what the pool, or one candidate, has learned from feedback, newest first."""
        path = make_path("pools", self.name, "learned")
        return Call("GET", path, LearnedList, query=_leave_out_none(candidate=candidate_id))

    @operation
    def unlearn(self, candidate_id: str, text: str | None = None) -> Call[Unlearned]:
        """Remove the learned example with a text, or all that a candidate has learned."""
        path = make_path("pools", self.name, "learned")
        query = _leave_out_none(candidate=candidate_id, text=text)
        return Call("DELETE", path, Unlearned, query=query)

    @operation
    def point_to(self, pool: str, expected: str | None = None) -> Call[PoolInfo]:
        """Make this name an alias of a pool, or move the alias to another pool; return the pool.

        Args:
            pool: The name of the pool.
            expected: The pool that the alias should point at now; another one is a conflict.
        """
        body = {"to": pool, "expected": expected}
        return Call("PUT", make_path("pools", self.name, "alias"), PoolInfo, body)

    @operation
    def delete_alias(self) -> Call[None]:
        """Delete the alias of this name, and not its pool."""
        return Call("DELETE", make_path("pools", self.name, "alias"), type(None), deletes=True)

    @operation
    def delete(self) -> Call[None]:
        """Delete the pool and all its candidates."""
        return Call("DELETE", make_path("pools", self.name), type(None), deletes=True)


def _leave_out_none(**query: str | None) -> dict[str, str]:
    return {name: value for name, value in query.items() if value is not None}
