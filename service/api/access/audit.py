"""The audit log: one line for each request of a known caller that changes or deletes something.

Its logger is `turnwise.audit`. The lines name sessions, pools and candidates, and quote no text.
"""

import logging

from starlette.types import Scope

from turnwise.service.api.access.keys import Caller

CLIENT_LEFT = 499
"""Status in logs and metrics if the client disconnected before the answer."""

_READING = {
    "/rank",
    "/v1/rerank",
    "/v2/rerank",
    "/plan",
    "/pools/{name}/search",
    "/v1/embeddings",
}
"""The routes that take a POST and change nothing."""
_SUBJECTS = {"session_id": "session", "name": "pool", "candidate_id": "candidate"}
"""Names of path parameters in the log."""

_log = logging.getLogger("turnwise.audit")


def audit(scope: Scope, status: int) -> None:
    """Log a request that has been answered, unless it only reads, or its caller is unknown.

    Args:
        scope: The request. Its state may hold `caller`; `noted`, more fields of the line;
            `outcome`, the status of work that ended after the answer had begun; and `reads`, true
            if a route that can change something changed nothing.
        status: The status of the answer.
    """
    state = scope.get("state", {})
    caller: Caller | None = state.get("caller")
    if caller is None or scope["method"] in {"GET", "HEAD"}:
        return
    route = scope["route"].path_format
    if route in _READING or state.get("reads"):
        return
    fields = {
        "key": caller.key,
        "namespace": state["namespace"],
        "method": scope["method"],
        "route": route,
        **{_SUBJECTS.get(name, name): value for name, value in scope["path_params"].items()},
        "status": state.get("outcome", status),
        **state.get("noted", {}),
    }
    _log.info("%(method)s %(route)s in %(namespace)s: %(status)d", fields, extra=fields)


def audit_flood(key: str | None, namespace: str, requests: int) -> None:
    """Log how many requests of a key were refused in a second without a line of their own."""
    fields = {"key": key, "namespace": namespace, "requests": requests}
    _log.info("a flood in %(namespace)s: %(requests)d requests refused", fields, extra=fields)
