"""API keys: who calls, in which namespace, and what they may do."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.service.errors import Forbidden, Unauthenticated
from turnwise.service.wire.keys import ApiKey, Scope

NAMESPACE = "default"
"""Namespace of everybody, where there are no keys."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls."""

    namespace: str
    scopes: frozenset[Scope]


_ANYBODY = Caller(NAMESPACE, frozenset({"select", "pools"}))


def identify(keys: Sequence[ApiKey], secret: str | None) -> Caller:
    """Return the holder of a key; every key is compared, so that time tells nothing.

    Raises:
        Unauthenticated: There are keys, and this is none of them.
    """
    if not keys:
        return _ANYBODY
    if secret is None:
        raise Unauthenticated("send an API key: Authorization: Bearer KEY")
    digest = hashlib.sha256(secret.encode()).hexdigest()
    matches = [key for key in keys if hmac.compare_digest(key.sha256, digest)]
    if not matches:
        raise Unauthenticated("the API key is not known")
    return Caller(matches[0].name, matches[0].scopes)


def authorize(caller: Caller, scopes: Sequence[Scope], namespace: str | None) -> str:
    """Return the namespace in which the caller acts.

    Args:
        caller: Who calls.
        scopes: What it takes, any one of these.
        namespace: Another namespace, which only administrators may ask for.

    Raises:
        Forbidden: The caller lacks them.
    """
    if "admin" in caller.scopes:
        return namespace or caller.namespace
    if caller.scopes.isdisjoint(scopes):
        raise Forbidden(f"this API key lacks the scope '{scopes[0]}'")
    if namespace not in {None, caller.namespace}:
        raise Forbidden("another namespace takes an API key with the scope 'admin'")
    return caller.namespace
