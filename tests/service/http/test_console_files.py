from pathlib import Path

import httpx
import pytest

import turnwise.service
from tests.support.messages import problem
from tests.support.service import Live

FILES = sorted((Path(turnwise.service.__file__).parent / "console").iterdir())
ASSETS = [file for file in FILES if file.suffix != ".html"]


def test_every_asset_has_its_type(live: Live) -> None:
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    for file in ASSETS:
        asset = live.http.get(f"/console/{file.name}")
        assert asset.status_code == 200, file.name
        assert asset.headers["content-type"].startswith(types[file.suffix])
        assert asset.headers["x-content-type-options"] == "nosniff"
        assert asset.content == file.read_bytes()


def test_the_policy_lets_in_nothing_but_its_own_files(live: Live) -> None:
    policy = live.http.get("/").headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'"} <= set(policy)
    assert "require-trusted-types-for 'script'" in policy
    assert not any("unsafe" in directive or "*" in directive for directive in policy)


@pytest.mark.parametrize("path", ["/", "/console/main.js"])
def test_what_is_known_is_not_sent_again(live: Live, path: str) -> None:
    first = live.http.get(path)
    assert first.headers["cache-control"] == "no-cache"
    etag = first.headers["etag"]
    for known in (etag, f'"other", W/{etag}', "*"):
        again = live.http.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    assert live.http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    head = live.http.head(path)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", etag)


@pytest.mark.parametrize(
    "name",
    [
        "index.html",
        "none.js",
        "__init__.py",
        "%2e%2e/app.py",
        "..%5capp.py",
        "%2fetc%2fpasswd",
        "main.js%00",
        "main.js/",
        "/main.js",
    ],
)
def test_nothing_else_is_answered(live: Live, name: str) -> None:
    answer = live.http.get(httpx.URL(live.url, raw_path=f"/console/{name}".encode()))
    assert problem(answer)[0] == 404
