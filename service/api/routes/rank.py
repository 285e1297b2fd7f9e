"""The route `/rank`: ranks candidates by a context, or toward goals."""

from typing import Annotated

from fastapi import APIRouter, Body
from starlette.responses import Response

from turnwise.service.api.access.dependencies import EncodingLists, ServicesDep
from turnwise.service.api.http.bodies import JsonRoute, answer, answer_in_parts
from turnwise.service.api.http.limits import check_turns
from turnwise.service.api.http.openapi import ENCODING_ERRORS, POOL_ERRORS, SERVER_TIMING, failures
from turnwise.service.errors import Conflict, SessionNotFound
from turnwise.service.selection.deadline import deadline
from turnwise.service.wire.ranking import RankAnswer, RankRequest

router = APIRouter(tags=["rank"], route_class=JsonRoute)

_CONTEXT = [{"speaker": "user", "text": "I would like to go away for a few days."}]
_EXAMPLES = {
    "next utterance": {
        "value": {
            "context": _CONTEXT,
            "candidates": ["Where would you like to go?", "Your parcel is on its way."],
        }
    },
    "toward a goal": {
        "value": {
            "context": _CONTEXT,
            "candidates": [
                {"id": "sea", "text": "The seaside is lovely now."},
                {"id": "city", "text": "How about a city with good museums?"},
            ],
            "goals": [{"text": "I would like to book the hotel by the beach.", "speaker": "user"}],
            "avoid": [{"text": "That is too expensive.", "speaker": "user", "threshold": 0.9}],
            "fit_weight": 0.2,
        }
    },
}


@router.post(
    "/rank",
    operation_id="rank",
    summary="Rank candidates",
    response_model=RankAnswer,
    responses={
        200: {"headers": SERVER_TIMING},
        **failures(*POOL_ERRORS, SessionNotFound, Conflict, *ENCODING_ERRORS, body=True),
    },
)
async def rank(
    services: ServicesDep,
    namespace: EncodingLists,
    request: Annotated[RankRequest, Body(openapi_examples=_EXAMPLES)],
) -> Response:
    """Ranks by next-utterance score or, with goals, by how well a candidate leads toward them.

    The context is that of a session, or the request gives it. The session does not change.
    """
    check_turns(services.settings, request)
    async with deadline(services.settings.request_timeout):
        result = await services.ranking.rank(namespace, request)
    if request.explain:  # up to 10 MB
        return await services.bodies.run(answer_in_parts, result, "ranking", result.timings_ms)
    return answer(result, result.timings_ms)
