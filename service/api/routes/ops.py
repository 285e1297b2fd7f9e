"""Routes for operators: probes, metrics and version. They need no API key."""

import asyncio
import platform
from functools import partial
from importlib.metadata import version as installed_version

from fastapi import APIRouter
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from turnwise.service.api.access.dependencies import EncoderServicesDep
from turnwise.service.api.http.bodies import answer
from turnwise.service.api.http.openapi import failures
from turnwise.service.api.services import EncoderServices
from turnwise.service.errors import NotReady
from turnwise.service.wire.ops import Alive, ModelFacts, Ready, Version
from turnwise.service.wire.problems import FieldError

router = APIRouter(tags=["operation"])

_FAILURES = {
    "model": "the encoder fails on every batch, or the encoder tier does not answer",
    "pools": "a pool that was in use is not loaded or not indexed yet",
    "redis": "Redis does not answer or rejects writes",
    "descriptors": "the process has no file descriptors left",
    "store": "the candidate store does not answer",
    "encoder": "the device does not finish a batch",
    "not_draining": "the service is stopping",
}


@router.head("/livez", include_in_schema=False)  # some load balancers send HEAD
@router.get(
    "/livez",
    operation_id="livez",
    summary="Is the process alive?",
    response_model=Alive,
    responses=failures(NotReady, keyed=False),
)
async def livez(services: EncoderServicesDep) -> Response:
    """Answers 200 unless the process needs a restart.

    It needs one when the device has not finished a batch for a minute, because Python cannot stop
    or replace the thread that waits for the device. `/readyz` answers 503 after ten seconds.
    """
    if any(queue.hung for queue in services.queues):
        raise NotReady(_FAILURES["encoder"], [FieldError(("encoder",), _FAILURES["encoder"])])
    return answer(Alive())


@router.head("/readyz", include_in_schema=False)
@router.get(
    "/readyz",
    operation_id="readyz",
    summary="Is the service ready for requests?",
    response_model=Ready,
    responses=failures(NotReady, keyed=False),
)
async def readyz(services: EncoderServicesDep) -> Response:
    """Answers 200 when the pools are ready, Redis accepts writes and the encoder makes progress.

    The candidate store, if there is one, must answer as well. The pools are `default` and those
    that requests have named on any replica in the last six hours of use. Each is loaded, and
    indexed if it is large; once that is so, later changes of pools do not turn readiness off.

    `warnings` names pools and aliases that Redis lost. They do not turn readiness off: turns on
    other pools are answered, and the lost pools can be uploaded again.

    The service accepts connections only after the model is loaded and warm.
    """
    checks = await _run_checks(services)
    failed = [check for check, passed in checks.items() if not passed]
    if failed:
        errors = [FieldError((check,), _FAILURES[check]) for check in failed]
        raise NotReady("; ".join(error.msg for error in errors), errors)
    return answer(Ready(ready=True, checks=checks, warnings=services.warnings()))


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses={200: {"content": {"application/openmetrics-text": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request, services: EncoderServicesDep) -> Response:
    """Every series exists from the start. Each scrape runs the checks behind `turnwise_ready`.

    A request whose `Accept` names `application/openmetrics-text` gets OpenMetrics, in which buckets
    of traced requests have exemplars; others get the text format of Prometheus.
    """
    await _run_checks(services)
    services.metrics.event_loop_tasks.set(len(asyncio.all_tasks()))
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    text = await services.scrapes.get(content_type, partial(encode, services.metrics.registry))
    return Response(text, headers={"Content-Type": content_type, "Vary": "Accept"})


@router.get(
    "/version", operation_id="version", summary="Version, model and limits", response_model=Version
)
async def version(services: EncoderServicesDep) -> Response:
    """Returns the version, the model, and every limit in force."""
    encoder = services.encoder
    model = ModelFacts(
        name=encoder.name,
        fingerprint=encoder.fingerprint,
        kind=encoder.kind,
        dimension=encoder.dimension,
        aggregation=encoder.aggregation.name,
        runtime=encoder.runtime,
        device=encoder.device,
        threads=encoder.threads,
    )
    facts = Version(
        version=installed_version("turnwise"),
        python=platform.python_version(),
        model=model,
        limits=services.settings.limits,
    )
    return answer(facts)


async def _run_checks(services: EncoderServices) -> dict[str, bool]:
    checks = await services.checks()
    services.metrics.ready.set(all(checks.values()))
    return checks
