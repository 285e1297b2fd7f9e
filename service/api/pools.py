"""`/pools`: catalogues of candidates."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Path, Request
from starlette.responses import Response, StreamingResponse

from turnwise.service.api.bodies import JsonRoute, answer
from turnwise.service.api.dependencies import (
    EditingPools,
    LookingAtPools,
    PoolName,
    Selecting,
    ServicesDep,
)
from turnwise.service.api.docs import ENCODING, failures
from turnwise.service.api.limits import check_limits
from turnwise.service.api.uploads import progress_lines, read_candidates
from turnwise.service.errors import (
    CandidateNotFound,
    Conflict,
    Draining,
    EncoderFailed,
    PoolFull,
    PoolNotFound,
    PoolNotReady,
    StateUnavailable,
)
from turnwise.service.selection.deadline import deadline
from turnwise.service.wire.fields import CandidateId
from turnwise.service.wire.pools import (
    NDJSON,
    Edited,
    PoolInfo,
    PoolList,
    PoolRequest,
    SearchAnswer,
    SearchRequest,
    UploadedCandidate,
)

router = APIRouter(prefix="/pools", tags=["pools"], route_class=JsonRoute)

_CANDIDATE = {
    "id": "late-parcel",
    "text": "I am sorry that it is late. What is its number?",
    "metadata": {"intent": "delivery"},
}
_SCHEMA = UploadedCandidate.model_json_schema()
_UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "array", "items": _SCHEMA},
                "example": [_CANDIDATE],
            },
            NDJSON: {"schema": _SCHEMA},
        },
    }
}
_PROGRESS = {
    "content": {
        NDJSON: {
            "schema": {"type": "string"},
            "example": '{"encoded":64,"total":128}\n{"version":2,"upserted":128}\n',
        }
    }
}


@router.get(
    "", operation_id="list_pools", summary="List the pools",
    response_model=PoolList, responses=failures(StateUnavailable),
)  # fmt: skip
async def list_pools(services: ServicesDep, namespace: LookingAtPools) -> Response:
    """Those of the caller's namespace, by name."""
    return answer(PoolList.model_construct(pools=services.pools.list(namespace)))


@router.put(
    "/{name}",
    operation_id="put_pool",
    summary="Create a pool, or describe it anew",
    response_model=PoolInfo,
    responses=failures(Conflict, StateUnavailable, body=True),
)
async def put_pool(
    services: ServicesDep, namespace: EditingPools, name: PoolName, pool: PoolRequest
) -> Response:
    """It begins without candidates; where there is one of this name, its candidates stay."""
    return answer(await services.pools.create(namespace, name, pool.description, pool.encoder))


@router.get(
    "/{name}", operation_id="get_pool", summary="Look at a pool",
    response_model=PoolInfo, responses=failures(PoolNotFound, PoolNotReady, StateUnavailable),
)  # fmt: skip
async def get_pool(services: ServicesDep, namespace: LookingAtPools, name: PoolName) -> Response:
    """Its version, its size, how it is searched, and whether it is ready here."""
    return answer(await services.pools.find(namespace, name))


@router.delete(
    "/{name}",
    operation_id="delete_pool",
    summary="Delete a pool",
    status_code=204,
    responses=failures(PoolNotFound, StateUnavailable),
)
async def delete_pool(services: ServicesDep, namespace: EditingPools, name: PoolName) -> Response:
    """With all its candidates."""
    await services.pools.drop(namespace, name)
    return Response(status_code=204)


@router.put(
    "/{name}/candidates",
    operation_id="put_candidates",
    summary="Add or replace candidates",
    response_model=Edited,
    openapi_extra=_UPLOAD,
    responses={
        200: _PROGRESS,
        **failures(
            PoolNotFound, PoolFull, PoolNotReady, StateUnavailable, EncoderFailed, Draining,
            body=True,
        ),
    },
)  # fmt: skip
async def put_candidates(
    services: ServicesDep,
    namespace: EditingPools,
    name: PoolName,
    request: Request,
    accept: Annotated[str, Header(description=f"`{NDJSON}` for lines of progress.")] = "",
) -> Response:
    """A JSON array, or a line of JSON a candidate, which is better for more than some thousands.

    All of it becomes one new version of the pool, or nothing does; a client that leaves calls it
    off. With `Accept: application/x-ndjson` the answer is lines of progress, of which the last
    holds the result, or the problem.
    """
    await services.pools.find(namespace, name)  # before anything is read or a stream begins
    candidates = await read_candidates(request, services.settings)
    if NDJSON not in accept:
        return answer(await services.pools.upsert(namespace, name, candidates, None))
    lines = progress_lines(
        lambda progress: services.pools.upsert(namespace, name, candidates, progress)
    )
    return StreamingResponse(lines, media_type=NDJSON)


@router.delete(
    "/{name}/candidates/{candidate_id:path}",
    operation_id="delete_candidate",
    summary="Delete a candidate",
    response_model=Edited,
    responses=failures(PoolNotFound, CandidateNotFound, PoolNotReady, StateUnavailable),
)
async def delete_candidate(
    services: ServicesDep,
    namespace: EditingPools,
    name: PoolName,
    candidate_id: Annotated[CandidateId, Path(examples=["late-parcel"])],
) -> Response:
    """Which makes a new version of the pool."""
    return answer(await services.pools.remove(namespace, name, candidate_id))


@router.post(
    "/{name}/search",
    operation_id="search_pool",
    summary="Find replies to one utterance",
    response_model=SearchAnswer,
    responses=failures(PoolNotFound, PoolNotReady, StateUnavailable, *ENCODING, body=True),
)
async def search_pool(
    services: ServicesDep,
    namespace: Selecting,
    name: PoolName,
    search: Annotated[SearchRequest, Body(examples=[{"text": "Where is my parcel?"}])],
) -> Response:
    """As if the text were all that had been said."""
    check_limits(services.settings, search)
    async with deadline(services.settings.request_timeout):
        found = await services.ranking.search(namespace, name, search.text, search.top_k)
    return answer(SearchAnswer.model_construct(candidates=found))
