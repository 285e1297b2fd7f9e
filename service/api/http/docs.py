"""The documentation at `/docs`: a page that loads no scripts from other servers."""

import asyncio
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, FastAPI
from pydantic_core import to_json
from starlette.responses import FileResponse, HTMLResponse, Response

from turnwise.service.api.http.headers import UNCACHED, page_headers
from turnwise.service.errors import NotFound

_HEADERS = page_headers("img-src 'self' data:")
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = 'SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true});\n'
"""A file of its own, because the policy forbids scripts in the page."""
_ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}


def add_docs(app: FastAPI) -> None:
    """Serve `/docs` and the document behind it, `/openapi.json`."""
    router = APIRouter(include_in_schema=False)

    @cache
    def document() -> bytes:
        return to_json(app.openapi())

    @router.get("/openapi.json")
    async def openapi() -> Response:
        body = await asyncio.to_thread(document)  # the first request builds it
        return Response(body, headers=UNCACHED, media_type="application/json")

    @router.get("/docs")
    async def docs() -> Response:
        return HTMLResponse(_PAGE.format(title=f"{app.title} {app.version}"), headers=_HEADERS)

    @router.get("/docs/start.js")
    async def start() -> Response:
        return Response(_START, headers=_HEADERS, media_type="text/javascript")

    @router.get("/docs/{asset}")
    async def asset(asset: str) -> Response:
        if asset not in _ASSETS:
            raise NotFound(f"there is nothing at /docs/{asset}")
        path = str(files("fastapi_offline") / "static" / asset)
        return FileResponse(path, headers=_HEADERS, media_type=_ASSETS[asset])

    app.include_router(router)
