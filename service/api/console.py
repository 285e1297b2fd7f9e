"""The console at `/`: a page and its modules, which call this API as any other client does.

The page is public. Its calls carry the API key that the user types in. The files are read once, and
only these files are served.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from turnwise.service.api.headers import page_headers
from turnwise.service.errors import NotFound

router = APIRouter(include_in_schema=False)

PAGE = "index.html"

_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = page_headers(
    "img-src 'self'",
    "require-trusted-types-for 'script'",  # strings cannot become markup
    "trusted-types 'none'",
)


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    etag: str


@cache
def _console() -> dict[str, _File]:
    """Return the console's files by name."""
    found = {}
    for item in (files("turnwise.service") / "console").iterdir():
        media_type = _MEDIA.get(item.name[item.name.rfind(".") :])
        if media_type:
            content = item.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[item.name] = _File(content, media_type, etag)
    return found


@router.api_route("/", methods=["GET", "HEAD"])
@router.api_route("/console", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """Return the page. Its links are relative, so that a proxy may add a prefix."""
    return _answer(request, PAGE)


@router.api_route("/console/", methods=["GET", "HEAD"])
async def page_with_slash() -> Response:
    """Redirect to the path from which the relative links of the page work."""
    return RedirectResponse("../console", 308)


@router.api_route("/console/{name}", methods=["GET", "HEAD"])
async def asset(request: Request, name: str) -> Response:
    """Return a module, a style sheet or the icon."""
    if name == PAGE or name not in _console():
        raise NotFound(f"there is nothing at /console/{name}")
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    file = _console()[name]
    headers = _HEADERS | {"ETag": file.etag}
    known = request.headers.get("if-none-match", "")
    if known == "*" or file.etag in {tag.strip().removeprefix("W/") for tag in known.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
