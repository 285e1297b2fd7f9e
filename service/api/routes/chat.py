"""The routes `/v1/chat/completions` and `/v1/models`, for the chat clients of OpenAI."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse

from turnwise.service.api.access.dependencies import Chatting, LookingAtPools, ServicesDep
from turnwise.service.api.http.bodies import JsonRoute, answer
from turnwise.service.api.http.headers import UNCACHED
from turnwise.service.api.http.openapi import ENCODING_ERRORS, POOL_ERRORS, failures
from turnwise.service.api.http.problems import problem
from turnwise.service.errors import (
    FallbackUnavailable,
    NamespaceFull,
    ServiceError,
    SessionFull,
    StateUnavailable,
    TurnConflict,
)
from turnwise.service.wire.chat import ChatAnswer, ChatChunk, ChatModelList, ChatRequest, JsonObject

SOURCE = "Turnwise-Source"
"""The header that says where an answer comes from."""
_EVENTS = "text/event-stream"
_END = b"data: [DONE]\n\n"
_EXAMPLES: dict[str, Any] = {
    "a question": {
        "value": {
            "model": "default",
            "messages": [{"role": "user", "content": "Is breakfast included in the price?"}],
        }
    },
    "streamed, with options of Turnwise": {
        "value": {
            "model": "default",
            "messages": [{"role": "user", "content": "Is breakfast included in the price?"}],
            "stream": True,
            "turnwise": {"where": {"topic": "hotel"}, "min_confidence": 0.3},
        }
    },
}
_ANSWERS: dict[str, Any] = {
    "headers": {
        SOURCE: {
            "description": "`candidate`; `text` or `service` if it is a fallback; or `none`.",
            "schema": {"type": "string", "enum": ["candidate", "text", "service", "none"]},
        }
    },
    "content": {_EVENTS: {"schema": {"type": "string"}}},
}

router = APIRouter(prefix="/v1", tags=["chat"], route_class=JsonRoute)

_log = logging.getLogger("turnwise.chat")


@router.post(
    "/chat/completions",
    operation_id="complete_chat",
    summary="Get the best reply after the messages of a chat",
    response_model=ChatAnswer,
    responses={
        200: _ANSWERS,
        **failures(
            *POOL_ERRORS,
            TurnConflict,
            SessionFull,
            NamespaceFull,
            FallbackUnavailable,
            *ENCODING_ERRORS,
            body=True,
        ),
    },
)
async def complete_chat(
    request: Request,
    services: ServicesDep,
    namespace: Chatting,
    chat: Annotated[ChatRequest, Body(openapi_examples=_EXAMPLES)],
) -> Response:
    """Works with the chat clients of OpenAI. The `model` is a pool or an alias.

    If a turn would offer no candidate, the answer comes from the fallback service of
    `TURNWISE_FALLBACK_URL`, unchanged, or is the pool's text `fallback`. With `stream` the answer
    is server-sent events.
    """
    request.state.reads = chat.turnwise.session_id is None
    if not chat.stream:
        source, completion = await services.chat.complete(namespace, chat)
        response = answer(completion)
        response.headers[SOURCE] = source
        return response
    source, events = await services.chat.stream(namespace, chat)
    lines = _write_events(events, request.scope["path"])
    return StreamingResponse(lines, headers=UNCACHED | {SOURCE: source}, media_type=_EVENTS)


@router.get(
    "/models",
    operation_id="list_models",
    summary="List the pools as models",
    response_model=ChatModelList,
    responses=failures(StateUnavailable),
)
async def list_models(services: ServicesDep, namespace: LookingAtPools) -> Response:
    """Returns the pools of the caller's namespace and their aliases."""
    return answer(await services.chat.models(namespace))


async def _write_events(
    events: AsyncGenerator[ChatChunk | JsonObject, None], path: str
) -> AsyncIterator[bytes]:
    """Yield server-sent events; an error after the beginning is the last one."""
    try:
        async with aclosing(events):
            async for event in events:
                yield _write_event(event)
        yield _END
    except ServiceError as error:
        _log.warning("a stream ended early: %s", error)
        yield _write_event({"error": problem(error, path).error})


def _write_event(event: object) -> bytes:
    return b"data: " + to_json(event, inf_nan_mode="null") + b"\n\n"
