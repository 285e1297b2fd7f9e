"""The route `/plan`: puts goals into the order in which a dialogue can reach them."""

from typing import Annotated

from fastapi import APIRouter, Body
from starlette.responses import Response

from turnwise.service.api.access.dependencies import EncodingLists, ServicesDep
from turnwise.service.api.http.bodies import JsonRoute, answer
from turnwise.service.api.http.limits import check_turns
from turnwise.service.api.http.openapi import ENCODING_ERRORS, SERVER_TIMING, failures
from turnwise.service.errors import Conflict, SessionNotFound, StateUnavailable
from turnwise.service.selection.deadline import deadline
from turnwise.service.wire.planning import PlanAnswer, PlanRequest

router = APIRouter(tags=["plan"], route_class=JsonRoute)

_EXAMPLES = {
    "three goals": {
        "value": {
            "goals": [
                {"id": "pay", "text": "How would you like to pay?"},
                {"id": "dates", "text": "When would you like to arrive?"},
                {"id": "room", "text": "We have a double room with a balcony."},
            ]
        }
    }
}


@router.post(
    "/plan",
    operation_id="plan",
    summary="Order goals",
    response_model=PlanAnswer,
    responses={
        200: {"headers": SERVER_TIMING},
        **failures(SessionNotFound, Conflict, StateUnavailable, *ENCODING_ERRORS, body=True),
    },
)
async def plan(
    services: ServicesDep,
    namespace: EncodingLists,
    request: Annotated[PlanRequest, Body(openapi_examples=_EXAMPLES)],
) -> Response:
    """Returns the best order of up to 16 goals, or the `top` best."""
    check_turns(services.settings, request)
    async with deadline(services.settings.request_timeout):
        result = await services.planning.plan(namespace, request)
    return answer(result, result.timings_ms)
