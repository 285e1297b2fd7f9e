"""The console at `/`: a page and its modules, which call this API as any other client does.

The page is public. Its calls carry the API key that the user types in. Only the files of its folder
are served.
"""

from importlib.resources import files
from mimetypes import add_type

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from turnwise.service.api.http.headers import page_headers
from turnwise.service.errors import NotFound

router = APIRouter(include_in_schema=False)

PAGE = "index.html"

add_type("text/javascript", ".js")  # as browsers need it; without this it depends on the system
_FILES = StaticFiles(packages=[("turnwise.service", "console")])
_NAMES = {item.name for item in (files("turnwise.service") / "console").iterdir()}
_HEADERS = page_headers(
    "img-src 'self'",
    "require-trusted-types-for 'script'",  # strings cannot become markup
    "trusted-types 'none'",
)


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
    if name == PAGE or name not in _NAMES:
        raise NotFound(f"there is nothing at /console/{name}")
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    path, found = _FILES.lookup_path(name)
    assert found is not None  # a file of the package
    response = _FILES.file_response(path, found, request.scope)
    response.headers.update(_HEADERS)
    return response
