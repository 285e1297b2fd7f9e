"""The route `/v1/embeddings` of a service that only encodes."""

from base64 import b64encode
from typing import Annotated

from fastapi import APIRouter, Body
from starlette.responses import Response

from turnwise.models.arrays import Float32
from turnwise.service.api.access.dependencies import EncoderServicesDep, Encoding
from turnwise.service.api.http.bodies import JsonRoute, answer
from turnwise.service.api.http.openapi import ENCODING_ERRORS, failures
from turnwise.service.encoder.batcher import Priority
from turnwise.service.errors import InvalidRequest, NotFound
from turnwise.service.wire.embeddings import Embedding, EmbeddingsAnswer, EmbeddingsRequest

router = APIRouter(tags=["encode"], route_class=JsonRoute)

_FEW = 2
"""Most texts of a request that are encoded before longer lists: a turn may wait for them."""
_EXAMPLES = {
    "texts": {"value": {"model": "default", "input": ["[AFTER] Yes, breakfast is included."]}}
}


@router.post(
    "/v1/embeddings",
    operation_id="embeddings",
    summary="Encode texts",
    response_model=EmbeddingsAnswer,
    responses=failures(NotFound, *ENCODING_ERRORS, body=True),
)
async def embeddings(
    services: EncoderServicesDep,
    namespace: Encoding,  # noqa: ARG001 - the queue knows it
    request: Annotated[EmbeddingsRequest, Body(openapi_examples=_EXAMPLES)],
) -> Response:
    """Returns the unit vectors of texts, which the model reads as they are: without a prefix.

    Replicas with `TURNWISE_ENCODER_URL` call it, and so can the clients of OpenAI.
    """
    encoder = services.encoder
    texts = request.texts
    if request.model != encoder.name:
        raise NotFound(f"there is no model '{request.model}'; this service has '{encoder.name}'")
    if request.dimensions is not None and request.dimensions != encoder.dimension:
        raise InvalidRequest.field(f"should be {encoder.dimension}, as the model has", "dimensions")
    priority = Priority.TURN if len(texts) <= _FEW else Priority.LIST
    timeout = services.settings.request_timeout
    vectors = await services.queues[0].encode(texts, priority, timeout)
    as_text = request.encoding_format == "base64"
    data = [
        Embedding(index=index, embedding=_write_base64(vector) if as_text else vector.tolist())
        for index, vector in enumerate(vectors)
    ]
    return answer(EmbeddingsAnswer(model=encoder.name, data=data, fingerprint=encoder.fingerprint))


def _write_base64(vector: Float32) -> str:
    return b64encode(vector.astype("<f4").tobytes()).decode()
