"""Dependencies of routes, as annotations: services, the namespace of the caller, path names."""

from collections.abc import AsyncIterator
from typing import Annotated, cast

from fastapi import Depends, Header, Path, Request
from fastapi.security import HTTPBearer

from turnwise.service.api.access.concurrency import Place, weigh_body
from turnwise.service.api.access.keys import authorize, identify
from turnwise.service.api.services import EncoderServices, Services
from turnwise.service.current_request import namespace, reads_learned
from turnwise.service.encoder.batcher import Priority
from turnwise.service.wire.fields import Name, SessionId
from turnwise.service.wire.keys import Scope


async def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


ServicesDep = Annotated[Services, Depends(_services)]
EncoderServicesDep = Annotated[EncoderServices, Depends(_services)]
NamespaceHeader = Annotated[
    Name | None,
    Header(
        description="Act in another namespace than the key's own. This needs the scope `admin`."
    ),
]


class Access(HTTPBearer):
    """The dependency of every route that takes an API key: the namespace in which the caller acts.

    `JsonRoute` admits a request before the body is read. FastAPI calls dependencies only after it
    has read the body.
    """

    def __init__(
        self, *scopes: Scope, encodes: Priority | None = None, limited: bool = True
    ) -> None:
        """Take what a request needs.

        Args:
            scopes: The caller needs one of these.
            encodes: The priority of the texts that the encoder reads for it; None without any.
            limited: Whether a request that encodes needs a place among those in progress.
        """
        super().__init__(
            scheme_name="API key",
            description="Needed if the service has API keys. Without keys, all clients share a "
            "namespace.",
            auto_error=False,
        )
        self._scopes = scopes
        self._encodes = encodes
        self._limited = limited

    async def admit(self, request: Request) -> Place | None:
        """Note the caller, and the namespace in which it wants to act, in the request's state.

        Returns:
            The place of the request among those in progress; None if it needs none.

        Raises:
            Unauthenticated: The API key is missing, unknown or expired.
            Forbidden: The key lacks the scope, or may not act in the namespace.
            RequestRateExceeded: The namespace sends more requests a second than it may.
            Overloaded: The request would wait too long, for a place or for the encoder.
            EncoderUnavailable: The remote encoder does not answer.
        """
        services = await _services(request)
        credentials = await super().__call__(request)
        secret = credentials.credentials if credentials else None
        caller = identify(services.keys.current, secret)
        request.state.caller = caller
        acting = request.headers.get("turnwise-namespace", caller.namespace)
        request.state.namespace = acting
        authorize(caller, self._scopes, acting)
        namespace.set(acting)
        reads_learned.set(not caller.scopes.isdisjoint({"pools", "admin"}))
        services.admission.count_request(acting)
        if self._encodes is not None:
            services.queues[0].check(self._encodes)
        if self._encodes is None or not self._limited:
            return None
        concurrency = services.concurrency[self._encodes]
        return await concurrency.enter(acting, weigh_body(request.headers))

    async def __call__(  # type: ignore[override]
        self,
        request: Request,
        turnwise_namespace: NamespaceHeader = None,  # noqa: ARG002
    ) -> str:
        """Return the namespace. The argument validates the header, and documents it."""
        return str(request.state.namespace)


Selecting = Annotated[str, Depends(Access("select"))]
"""The caller's namespace; the caller may use sessions and search pools."""
Encoding = Annotated[str, Depends(Access("select", encodes=Priority.TURN))]
"""The caller's namespace, for requests with an utterance for the encoder."""
Chatting = Annotated[str, Depends(Access("select", encodes=Priority.TURN, limited=False))]
"""The caller's namespace, for requests that encode and need no place: they may wait long for the
fallback service."""
EncodingLists = Annotated[str, Depends(Access("select", encodes=Priority.LIST))]
"""The caller's namespace, for requests with candidates or goals for the encoder."""
LookingAtPools = Annotated[str, Depends(Access("select", "pools"))]
"""The caller's namespace; the caller may list pools. Either scope is enough."""
EditingPools = Annotated[str, Depends(Access("pools"))]
"""The caller's namespace; the caller may change pools."""
Administering = Annotated[str, Depends(Access("admin"))]
"""The namespace that the caller names, or its own; the caller may list and delete sessions."""


async def _one_upload(services: ServicesDep, acting: EditingPools) -> AsyncIterator[None]:
    """Count an upload until its answer is sent."""
    with services.admission.count_upload(acting):
        yield


Uploading = Depends(_one_upload)
"""Rejects an upload beyond those that a namespace may have at once."""

SessionPath = Annotated[
    SessionId,
    Path(description="Chosen by the client.", examples=["c-1842", "whatsapp:+15550100"]),
]
PoolName = Annotated[Name, Path(description="Chosen by the client.", examples=["default"])]
