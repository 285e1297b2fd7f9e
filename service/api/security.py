"""API keys: identify the caller, check scopes, and choose the namespace."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from turnwise.service.errors import Forbidden, Unauthenticated
from turnwise.service.wire.keys import ApiKey, Scope

NAMESPACE = "default"
"""The namespace of all callers if the service has no API keys."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of an API key."""

    key: str | None
    """The name of the key; None if the service has no keys."""
    scopes: frozenset[Scope]

    @property
    def namespace(self) -> str:
        """The namespace of the key."""
        return self.key or NAMESPACE


_ANYBODY = Caller(None, frozenset({"select", "pools"}))


def identify(keys: Sequence[ApiKey] | None, secret: str | None) -> Caller:
    """Return the holder of a key. It compares all keys, so that the time reveals nothing.

    Args:
        keys: The keys of the service; None if it takes none.
        secret: The key that the caller sent.

    Raises:
        Unauthenticated: The service has API keys, and this is not one of them, or has expired.
    """
    if keys is None:
        return _ANYBODY
    if secret is None:
        raise Unauthenticated("send an API key: Authorization: Bearer KEY")
    digest = hashlib.sha256(secret.encode()).hexdigest()
    matches = [key for key in keys if hmac.compare_digest(key.sha256, digest)]
    if not matches:
        raise Unauthenticated("the API key is unknown")
    now = datetime.now(UTC)
    valid = [key for key in matches if key.expires is None or key.expires > now]
    if not valid:
        raise Unauthenticated(f"the API key expired at {matches[0].expires}")
    return Caller(valid[0].name, valid[0].scopes)


def authorize(caller: Caller, scopes: Sequence[Scope], namespace: str) -> None:
    """Check that the caller may act in a namespace.

    Args:
        caller: The holder of the key.
        scopes: The caller needs one of these.
        namespace: With the scope `admin` any, else the caller's own.

    Raises:
        Forbidden: The caller lacks a scope.
    """
    if "admin" in caller.scopes:
        return
    if caller.scopes.isdisjoint(scopes):
        raise Forbidden(f"this needs an API key with the scope '{scopes[0]}'")
    if namespace != caller.namespace:
        raise Forbidden("another namespace needs an API key with the scope 'admin'")
