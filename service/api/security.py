"""API keys: identify the caller, check scopes, and choose the namespace."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.service.errors import Forbidden, Unauthenticated
from turnwise.service.wire.keys import ApiKey, Scope

NAMESPACE = "default"
"""The namespace of all callers if the service has no API keys."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of an API key."""

    namespace: str
    scopes: frozenset[Scope]


_ANYBODY = Caller(NAMESPACE, frozenset({"select", "pools"}))


def identify(keys: Sequence[ApiKey], secret: str | None) -> Caller:
    """Return the holder of a key. It compares all keys, so that the time reveals nothing.

    Raises:
        Unauthenticated: The service has API keys, and this is not one of them.
    """
    if not keys:
        return _ANYBODY
    if secret is None:
        raise Unauthenticated("send an API key: Authorization: Bearer KEY")
    digest = hashlib.sha256(secret.encode()).hexdigest()
    matches = [key for key in keys if hmac.compare_digest(key.sha256, digest)]
    if not matches:
        raise Unauthenticated("the API key is unknown")
    return Caller(matches[0].name, matches[0].scopes)


def authorize(caller: Caller, scopes: Sequence[Scope], namespace: str | None) -> str:
    """Return the namespace in which the caller acts.

    Args:
        caller: The holder of the key.
        scopes: The caller needs one of these.
        namespace: Another namespace; only the scope `admin` may ask for it.

    Raises:
        Forbidden: The caller lacks a scope.
    """
    if "admin" in caller.scopes:
        return namespace or caller.namespace
    if caller.scopes.isdisjoint(scopes):
        raise Forbidden(f"this API key lacks the scope '{scopes[0]}'")
    if namespace not in {None, caller.namespace}:
        raise Forbidden("another namespace needs an API key with the scope 'admin'")
    return caller.namespace
