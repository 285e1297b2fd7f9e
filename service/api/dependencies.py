"""Dependencies of routes, as annotations: services, the namespace of the caller, path names."""

from collections.abc import Awaitable, Callable
from typing import Annotated, cast

from fastapi import Depends, Header, Path, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from turnwise.service.api.security import authorize, identify
from turnwise.service.api.services import Services
from turnwise.service.wire.fields import Name
from turnwise.service.wire.keys import Scope

_bearer = HTTPBearer(
    scheme_name="API key",
    description="Needed if the service has API keys. Without keys, all clients share a namespace.",
    auto_error=False,
)


async def _services(request: Request) -> Services:
    return cast(Services, request.app.state.services)


ServicesDep = Annotated[Services, Depends(_services)]
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
NamespaceHeader = Annotated[
    Name | None,
    Header(
        description="Act in another namespace than the key's own. This needs the scope `admin`."
    ),
]


def _acting(*scopes: Scope) -> Callable[..., Awaitable[str]]:
    async def namespace(
        services: ServicesDep, credentials: Credentials, turnwise_namespace: NamespaceHeader = None
    ) -> str:
        secret = credentials.credentials if credentials else None
        caller = identify(services.settings.api_keys, secret)
        return authorize(caller, scopes, turnwise_namespace)

    return namespace


Selecting = Annotated[str, Depends(_acting("select"))]
"""The caller's namespace; the caller may use sessions and search pools."""
LookingAtPools = Annotated[str, Depends(_acting("select", "pools"))]
"""The caller's namespace; the caller may list pools. Either scope is enough."""
EditingPools = Annotated[str, Depends(_acting("pools"))]
"""The caller's namespace; the caller may change pools."""

SessionId = Annotated[Name, Path(description="Chosen by the client.", examples=["c-1842"])]
PoolName = Annotated[Name, Path(description="Chosen by the client.", examples=["default"])]
