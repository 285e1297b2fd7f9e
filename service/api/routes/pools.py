"""The routes `/pools`: create, edit, delete and search pools of candidates."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Path, Query, Request
from starlette.responses import Response, StreamingResponse

from turnwise.service.api.access.dependencies import (
    EditingPools,
    Encoding,
    LookingAtPools,
    PoolName,
    ServicesDep,
    Uploading,
)
from turnwise.service.api.http.bodies import JsonRoute, answer
from turnwise.service.api.http.headers import UNCACHED
from turnwise.service.api.http.openapi import ENCODING_ERRORS, POOL_ERRORS, failures
from turnwise.service.api.http.uploads import read_upload, stream_progress
from turnwise.service.errors import (
    CandidateNotFound,
    Conflict,
    DeadlineExceeded,
    Draining,
    EncoderFailed,
    EncoderUnavailable,
    NamespaceFull,
    NotEnoughMemory,
    Overloaded,
    PoolFull,
    PoolNotFound,
    PoolNotReady,
    StateUnavailable,
    StoreUnavailable,
    TooManyUploads,
)
from turnwise.service.pools.encoding import EncodingProgress
from turnwise.service.selection.deadline import deadline
from turnwise.service.wire.fields import CandidateId
from turnwise.service.wire.pools import (
    NDJSON,
    AliasRequest,
    CandidateChange,
    CandidatePage,
    CandidatesQuery,
    Edited,
    FileEdited,
    LearnedList,
    LearnedQuery,
    PoolCandidate,
    PoolInfo,
    PoolList,
    PoolRequest,
    RemovalRequest,
    Removed,
    SearchAnswer,
    SearchRequest,
    Unlearned,
    UnlearnQuery,
    UploadedCandidate,
    UploadQuery,
)

router = APIRouter(prefix="/pools", tags=["pools"], route_class=JsonRoute)

CandidatePath = Annotated[CandidateId, Path(examples=["late-parcel"])]

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
            "text/csv": {"schema": {"type": "string"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
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
    "",
    operation_id="list_pools",
    summary="List the pools",
    response_model=PoolList,
    responses=failures(StateUnavailable),
)
async def list_pools(services: ServicesDep, namespace: LookingAtPools) -> Response:
    """Returns the pools of the caller's namespace, sorted by name."""
    return answer(PoolList.model_construct(pools=await services.pools.list(namespace)))


@router.put(
    "/{name}",
    operation_id="put_pool",
    summary="Create a pool or change its settings",
    response_model=PoolInfo,
    responses=failures(Conflict, NamespaceFull, StateUnavailable, StoreUnavailable, body=True),
)
async def put_pool(
    services: ServicesDep, namespace: EditingPools, name: PoolName, pool: PoolRequest
) -> Response:
    """A new pool is empty. A pool that exists keeps its candidates; only given settings change."""
    return answer(await services.pools.create(namespace, name, pool))


@router.get(
    "/{name}",
    operation_id="get_pool",
    summary="Get a pool",
    response_model=PoolInfo,
    responses=failures(*POOL_ERRORS),
)
async def get_pool(services: ServicesDep, namespace: LookingAtPools, name: PoolName) -> Response:
    """Returns its version, size and index, and whether it is ready on this replica."""
    return answer(await services.pools.info(namespace, name))


@router.delete(
    "/{name}",
    operation_id="delete_pool",
    summary="Delete a pool",
    status_code=204,
    responses=failures(Conflict, PoolNotFound, StateUnavailable, StoreUnavailable),
)
async def delete_pool(services: ServicesDep, namespace: EditingPools, name: PoolName) -> Response:
    """Deletes the pool and all its candidates. A pool that an alias points at is not deleted.

    A pool or an alias that Redis lost no longer counts as missing.
    """
    await services.pools.drop(namespace, name)
    return Response(status_code=204)


@router.put(
    "/{name}/alias",
    operation_id="put_alias",
    summary="Create an alias or move it to another pool",
    response_model=PoolInfo,
    responses=failures(
        Conflict, NamespaceFull, PoolNotFound, PoolNotReady, StateUnavailable, body=True
    ),
)
async def put_alias(
    services: ServicesDep,
    namespace: EditingPools,
    name: PoolName,
    alias: Annotated[AliasRequest, Body(examples=[{"to": "shop-2", "expected": "shop-1"}])],
) -> Response:
    """Requests may then use the alias wherever they name a pool. Returns the pool.

    A replica goes on with the former pool until it has read the other one.
    """
    return answer(await services.pools.point(namespace, name, alias.to, alias.expected))


@router.delete(
    "/{name}/alias",
    operation_id="delete_alias",
    summary="Delete an alias",
    status_code=204,
    responses=failures(PoolNotFound, StateUnavailable),
)
async def delete_alias(services: ServicesDep, namespace: EditingPools, name: PoolName) -> Response:
    """Deletes the alias, and not its pool."""
    await services.pools.unpoint(namespace, name)
    return Response(status_code=204)


@router.get(
    "/{name}/candidates",
    operation_id="list_candidates",
    summary="List candidates",
    response_model=CandidatePage,
    responses=failures(*POOL_ERRORS, Overloaded, DeadlineExceeded),
)
async def list_candidates(
    services: ServicesDep,
    namespace: LookingAtPools,
    name: PoolName,
    query: Annotated[CandidatesQuery, Query()],
) -> Response:
    """Returns a page of the candidates that match, sorted by id.

    Every matching candidate that is in the pool from the first request to the last one is on
    exactly one page. Candidates that are added or changed meanwhile may be missing. A candidate
    store has its own order, and any page of it may have fewer candidates than `limit`, or none.
    """
    async with deadline(services.settings.request_timeout):
        return answer(await services.candidates.list_candidates(namespace, name, query))


@router.put(
    "/{name}/candidates",
    operation_id="put_candidates",
    summary="Add or replace candidates",
    response_model=Edited | FileEdited,
    openapi_extra=_UPLOAD,
    dependencies=[Uploading],
    responses={
        200: _PROGRESS,
        **failures(
            *POOL_ERRORS,
            CandidateNotFound,
            PoolFull,
            NamespaceFull,
            TooManyUploads,
            Overloaded,
            EncoderFailed,
            EncoderUnavailable,
            Draining,
            NotEnoughMemory,
            body=True,
        ),
    },
)
async def put_candidates(
    services: ServicesDep,
    namespace: EditingPools,
    name: PoolName,
    request: Request,
    *,
    query: Annotated[UploadQuery, Query()],
    accept: Annotated[str, Header(description=f"`{NDJSON}` asks for lines of progress.")] = "",
) -> Response:
    """Takes a JSON array, or one line of JSON per candidate. Use lines for thousands of candidates.

    It also takes files of candidates, with `file` or a content type such as `text/csv`; the answer
    then has `notes`. The upload makes one new version of the pool, or changes nothing if it fails.
    It stops if the client disconnects. With `Accept: application/x-ndjson` the answer is lines of
    progress. The last line holds the result or the problem.
    """
    await services.pools.info(namespace, name)  # fails before the body is read or the stream begins
    memory = services.followed_pools.resources.memory
    upload = await read_upload(request, query, services.settings, memory, services.uploads)
    edit = services.pools.add_examples if query.examples == "add" else services.pools.upsert

    async def put(progress: EncodingProgress | None = None) -> Edited:
        edited = await edit(namespace, name, upload.candidates, progress)
        warnings = await services.upload_checks.warn(upload.candidates)
        return upload.describe(replace(edited, warnings=warnings))

    if NDJSON not in accept:
        return answer(await put())
    return StreamingResponse(stream_progress(request, put), headers=UNCACHED, media_type=NDJSON)


@router.post(
    "/{name}/candidates/delete",
    operation_id="delete_candidates",
    summary="Delete many candidates",
    response_model=Removed,
    responses=failures(*POOL_ERRORS, Overloaded, body=True),
)
async def delete_candidates(
    services: ServicesDep,
    namespace: EditingPools,
    name: PoolName,
    removal: Annotated[RemovalRequest, Body(examples=[{"ids": ["late-parcel"]}])],
) -> Response:
    """Makes one new version without these candidates. Ids that the pool lacks are counted."""
    return answer(await services.pools.remove_many(namespace, name, removal.ids))


@router.get(
    "/{name}/learned",
    operation_id="list_learned",
    summary="List learned examples",
    response_model=LearnedList,
    responses=failures(*POOL_ERRORS, CandidateNotFound),
)
async def list_learned(
    services: ServicesDep,
    namespace: EditingPools,
    name: PoolName,
    query: Annotated[LearnedQuery, Query()],
) -> Response:
    """Returns the examples that feedback has added, newest first, at most 1000."""
    return answer(await services.learning.list_learned(namespace, name, query.candidate))


@router.delete(
    "/{name}/learned",
    operation_id="delete_learned",
    summary="Remove learned examples of a candidate",
    response_model=Unlearned,
    responses=failures(*POOL_ERRORS, CandidateNotFound, Overloaded),
)
async def delete_learned(
    request: Request,
    services: ServicesDep,
    namespace: EditingPools,
    name: PoolName,
    query: Annotated[UnlearnQuery, Query()],
) -> Response:
    """Removes the learned example with this text, or all; the candidate itself stays."""
    request.state.noted = {"candidate": query.candidate}
    return answer(await services.learning.unlearn(namespace, name, query.candidate, query.text))


@router.get(
    "/{name}/candidates/{candidate_id:path}",
    operation_id="get_candidate",
    summary="Get a candidate",
    response_model=PoolCandidate,
    responses=failures(*POOL_ERRORS, CandidateNotFound),
)
async def get_candidate(
    services: ServicesDep, namespace: LookingAtPools, name: PoolName, candidate_id: CandidatePath
) -> Response:
    """Returns its text, metadata, group and examples, and those that it has learned."""
    return answer(await services.candidates.get_candidate(namespace, name, candidate_id))


@router.patch(
    "/{name}/candidates/{candidate_id:path}",
    operation_id="change_candidate",
    summary="Change a candidate",
    response_model=Edited,
    responses=failures(
        *POOL_ERRORS,
        CandidateNotFound,
        NamespaceFull,
        Overloaded,
        EncoderFailed,
        EncoderUnavailable,
        Draining,
        NotEnoughMemory,
        body=True,
    ),
)
async def change_candidate(
    services: ServicesDep,
    namespace: EditingPools,
    name: PoolName,
    candidate_id: CandidatePath,
    change: Annotated[
        CandidateChange, Body(examples=[{"text": "I am sorry. What is its number?"}])
    ],
) -> Response:
    """Makes a new version with the given fields of the candidate; what it has learned stays."""
    return answer(await services.candidates.change_candidate(namespace, name, candidate_id, change))


@router.delete(
    "/{name}/candidates/{candidate_id:path}",
    operation_id="delete_candidate",
    summary="Delete a candidate",
    response_model=Edited,
    responses=failures(*POOL_ERRORS, CandidateNotFound, Overloaded),
)
async def delete_candidate(
    services: ServicesDep,
    namespace: EditingPools,
    name: PoolName,
    candidate_id: CandidatePath,
) -> Response:
    """Makes a new version of the pool without the candidate."""
    return answer(await services.pools.remove(namespace, name, candidate_id))


@router.post(
    "/{name}/search",
    operation_id="search_pool",
    summary="Find replies to one utterance",
    response_model=SearchAnswer,
    responses=failures(*POOL_ERRORS, *ENCODING_ERRORS, body=True),
)
async def search_pool(
    services: ServicesDep,
    namespace: Encoding,
    name: PoolName,
    search: Annotated[SearchRequest, Body(examples=[{"text": "Where is my parcel?"}])],
) -> Response:
    """Ranks the candidates with the text as the whole context."""
    async with deadline(services.settings.request_timeout):
        found = await services.search.search(namespace, name, search)
    return answer(found)
