"""The routes `/v1/rerank` and `/v2/rerank`: compatible with the clients of Cohere and Jina."""

from typing import Annotated

from fastapi import APIRouter, Body
from starlette.responses import Response

from turnwise.service.api.access.dependencies import EncodingLists, ServicesDep
from turnwise.service.api.http.bodies import JsonRoute, answer
from turnwise.service.api.http.openapi import ENCODING_ERRORS, failures
from turnwise.service.selection.deadline import deadline
from turnwise.service.wire.reranking import RerankAnswer, RerankRequest

router = APIRouter(tags=["rank"], route_class=JsonRoute)

_EXAMPLES = {
    "documents": {
        "value": {
            "model": "any",
            "query": "I would like to go away for a few days.",
            "documents": ["Where would you like to go?", "Your parcel is on its way."],
            "top_n": 1,
        }
    },
}


async def rerank(
    services: ServicesDep,
    namespace: EncodingLists,
    request: Annotated[RerankRequest, Body(openapi_examples=_EXAMPLES)],
) -> Response:
    """Orders documents by how well they follow a query, as clients of Cohere and Jina expect it.

    The cross-encoder scores them if the service has one, otherwise the encoder. Longer texts than
    the limit are cut.
    """
    settings = services.settings
    async with deadline(settings.request_timeout):
        result = await services.document_ranking.rerank(namespace, request, settings.max_text_chars)
    return answer(result)


for _version in ("v1", "v2"):
    router.post(
        f"/{_version}/rerank",
        operation_id=f"rerank_{_version}",
        summary="Rank documents by a query",
        response_model=RerankAnswer,
        responses=failures(*ENCODING_ERRORS, body=True),
    )(rerank)
