"""Refuses what would wait too long for the encoder, before anything is done for it."""

from starlette.types import Receive, Scope, Send

from turnwise.service.api.middleware import SHED, HttpMiddleware
from turnwise.service.api.problems import problem_response
from turnwise.service.api.services import Services
from turnwise.service.errors import Overloaded

_ROUTES = {
    "turn": "/sessions/{session_id}/turn",
    "rank": "/rank",
    "plan": "/plan",
    "search": "/pools/{name}/search",
}
"""Every POST needs the encoder; by the last part of its path, the route that metrics name."""


class Shedding(HttpMiddleware):
    """Answers 429 for a fraction of what routing and reading the request would cost."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass where its texts would be encoded soon."""
        route = _ROUTES.get(scope["path"].rpartition("/")[2]) if scope["method"] == "POST" else None
        if route:
            services: Services = scope["app"].state.services
            try:
                services.check()
            except Overloaded as error:
                scope[SHED] = route
                await problem_response(error)(scope, receive, send)
                return
        await self.app(scope, receive, send)
