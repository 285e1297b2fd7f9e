"""The routes `/sessions`: turns, settings, feedback, transcripts, undo, scores, deletion."""

from typing import Annotated

from fastapi import APIRouter, Body, Header, Path, Query, Request
from starlette.responses import Response

from turnwise.service.api.access.dependencies import (
    Administering,
    Encoding,
    Selecting,
    ServicesDep,
    SessionPath,
)
from turnwise.service.api.access.keys import authorize
from turnwise.service.api.http.bodies import JsonRoute, answer
from turnwise.service.api.http.limits import check_turns
from turnwise.service.api.http.openapi import ENCODING_ERRORS, POOL_ERRORS, SERVER_TIMING, failures
from turnwise.service.errors import (
    CandidateNotFound,
    Conflict,
    DeadlineExceeded,
    FeedbackFull,
    IdempotencyMismatch,
    NamespaceFull,
    Overloaded,
    PoolNotReady,
    SessionFull,
    SessionNotFound,
    SessionStarted,
    StateUnavailable,
    StoreUnavailable,
    TurnConflict,
    TurnNotFound,
)
from turnwise.service.selection.deadline import deadline
from turnwise.service.wire.fields import IdempotencyKey
from turnwise.service.wire.sessions import (
    DeletionQuery,
    Feedback,
    FeedbackRequest,
    ScoreMatrix,
    ScoresQuery,
    SessionRequest,
    SessionsDeleted,
    SessionsPage,
    SessionsQuery,
    Transcript,
    TurnAnswer,
    TurnRequest,
    Undone,
)

router = APIRouter(prefix="/sessions", tags=["sessions"], route_class=JsonRoute)

IdempotencyHeader = Annotated[
    IdempotencyKey | None,
    Header(
        description="A retry with the same key and body returns the first answer, with `replayed`."
    ),
]
_SAID = {
    "said by the user": {"value": {"speaker": "user", "text": "My parcel has not arrived."}},
    "explained": {
        "value": {
            "speaker": "user",
            "text": "My parcel has not arrived.",
            "pool": "default",
            "top_k": 3,
            "aggregation": "last_rows",
            "last_rows": 2,
            "explain": True,
        }
    },
    "said by the bot": {"value": {"speaker": "bot", "text": "Could you tell me its number?"}},
    "a candidate said by the bot": {"value": {"speaker": "bot", "candidate": "late-parcel"}},
    "a preview": {"value": {"speaker": "user", "text": "My parcel has", "commit": False}},
}


@router.post(
    "/{session_id}/turn",
    operation_id="post_turn",
    summary="Post a turn and get the best candidates",
    response_model=TurnAnswer,
    responses={
        200: {"headers": SERVER_TIMING},
        **failures(
            *POOL_ERRORS,
            IdempotencyMismatch,
            CandidateNotFound,
            TurnConflict,
            SessionFull,
            NamespaceFull,
            *ENCODING_ERRORS,
            body=True,
        ),
    },
)
async def post_turn(
    request: Request,
    services: ServicesDep,
    namespace: Encoding,
    session_id: SessionPath,
    *,
    turn: Annotated[TurnRequest, Body(openapi_examples=_SAID)],
    idempotency_key: IdempotencyHeader = None,
) -> Response:
    """The first turn creates the session.

    The answer holds candidates if the speaker is not the responder, by default `bot` or
    `assistant`. `respond` overrides this. With `"commit": false` the session stays as it is.
    """
    check_turns(services.settings, turn)
    request.state.reads = not turn.commit
    result = await services.turns.turn(namespace, session_id, turn, idempotency_key)
    return answer(result, result.timings_ms)


@router.put(
    "/{session_id}",
    operation_id="put_session",
    summary="Set the responder or the filter",
    response_model=Transcript,
    responses=failures(
        SessionStarted, NamespaceFull, Overloaded, DeadlineExceeded, StateUnavailable, body=True
    ),
)
async def put_session(
    services: ServicesDep, namespace: Selecting, session_id: SessionPath, session: SessionRequest
) -> Response:
    """This is needed only if the responder is neither `bot` nor `assistant`, or to set a filter.

    The first turn fixes the responder. The filter may change at any time.
    """
    return answer(await services.sessions.open(namespace, session_id, session))


@router.get(
    "/{session_id}",
    operation_id="get_session",
    summary="Read the transcript",
    response_model=Transcript,
    responses=failures(SessionNotFound, StateUnavailable),
)
async def get_session(
    services: ServicesDep, namespace: Selecting, session_id: SessionPath
) -> Response:
    """Returns the turns with their speakers, and when the session expires."""
    return answer(await services.sessions.transcript(namespace, session_id))


@router.delete(
    "/{session_id}",
    operation_id="delete_session",
    summary="Delete a session",
    status_code=204,
    responses=failures(SessionNotFound, StateUnavailable),
)
async def delete_session(
    services: ServicesDep, namespace: Selecting, session_id: SessionPath
) -> Response:
    """Deletes the session and everything stored about it."""
    await services.sessions.delete(namespace, session_id)
    return Response(status_code=204)


@router.delete(
    "/{session_id}/turns/last",
    operation_id="undo_turn",
    summary="Undo the last turn",
    response_model=Undone,
    responses=failures(SessionNotFound, Conflict, Overloaded, DeadlineExceeded, StateUnavailable),
)
async def undo_turn(
    services: ServicesDep, namespace: Selecting, session_id: SessionPath
) -> Response:
    """The session continues as if the last turn had not been posted."""
    return answer(await services.sessions.undo(namespace, session_id))


@router.post(
    "/{session_id}/turns/{turn}/feedback",
    operation_id="post_feedback",
    summary="Say what became of a candidate",
    response_model=Feedback,
    responses=failures(
        SessionNotFound, TurnNotFound, Conflict, FeedbackFull, StateUnavailable, body=True
    ),
)
async def post_feedback(
    request: Request,
    services: ServicesDep,
    namespace: Selecting,
    session_id: SessionPath,
    *,
    turn: Annotated[int, Path(ge=1, description="The turn whose answer offered the candidate.")],
    feedback: FeedbackRequest,
) -> Response:
    """The same event again changes nothing. An undo of the turn removes its feedback.

    With `learn` the pool learns from the choice; this needs the scope `pools`.
    """
    if feedback.learn:
        authorize(request.state.caller, ("pools",), namespace)
    result = await services.sessions.add_feedback(namespace, session_id, turn, feedback)
    if result.learned:
        request.state.noted = {"candidate": result.candidate, "learned": True}
    return answer(result)


@router.get(
    "/{session_id}/scores",
    operation_id="get_scores",
    summary="Read the score matrix",
    response_model=ScoreMatrix,
    responses=failures(*POOL_ERRORS, SessionNotFound, CandidateNotFound, *ENCODING_ERRORS),
)
async def get_scores(
    services: ServicesDep,
    namespace: Encoding,
    session_id: SessionPath,
    query: Annotated[ScoresQuery, Query()],
) -> Response:
    """Returns the scores after each utterance: a line per utterance, a column per candidate."""
    check_turns(services.settings, query)
    async with deadline(services.settings.request_timeout):
        matrix = await services.sessions.scores(namespace, session_id, query)
    # A large matrix takes a while, during which the event loop can continue.
    return await services.bodies.run(answer, matrix)


@router.get(
    "",
    operation_id="list_sessions",
    summary="List sessions",
    response_model=SessionsPage,
    responses=failures(StateUnavailable),
)
async def list_sessions(
    services: ServicesDep, namespace: Administering, query: Annotated[SessionsQuery, Query()]
) -> Response:
    """Returns ids a page at a time, in no order. It needs the scope `admin`.

    Every session that exists from the first request to the last one is on a page, sometimes on two.
    Sessions that begin or end meanwhile may be missing.
    """
    return answer(await services.sessions.page(namespace, query.prefix or "", query.cursor))


@router.delete(
    "",
    operation_id="delete_sessions",
    summary="Delete the sessions whose ids begin with a prefix",
    response_model=SessionsDeleted,
    responses=failures(PoolNotReady, StateUnavailable, StoreUnavailable),
)
async def delete_sessions(
    request: Request,
    services: ServicesDep,
    namespace: Administering,
    query: Annotated[DeletionQuery, Query()],
) -> Response:
    """A request deletes a part of them: send the next one with its `cursor` until that is null.

    It needs the scope `admin`. A deletion that was interrupted can be sent again, with the last
    cursor or from the beginning. With `learned` the last request also removes the learned examples
    that came from such sessions, from all pools of the namespace.
    """
    request.state.noted = {"prefix": query.prefix}
    return answer(
        await services.sessions.erase(namespace, query.prefix, query.cursor, learned=query.learned)
    )
