import httpx
import pytest

from tests.unit.api.conftest import Parts
from tests.unit.api.http.test_problems import OPERATIONS, check_problem, url
from turnwise.service.errors import Overloaded

pytestmark = pytest.mark.anyio

UPLOADS = {"/pools/{name}/candidates", "/pools/{name}/candidates/{candidate_id}"}
"""They encode as well, and wait for the encoder as long as it takes."""
ENCODES = [
    (method, url(path))
    for method, path, operation in OPERATIONS
    if "encoder-unavailable" in str(operation["responses"].get("503")) and path not in UPLOADS
]


@pytest.fixture
def overloaded(parts: Parts) -> None:
    parts.outcomes["check"] = Overloaded("7 texts wait for the encoder already")


@pytest.mark.usefixtures("overloaded")
@pytest.mark.parametrize(("method", "path"), ENCODES)
async def test_a_request_that_would_wait_too_long_is_rejected_unread(
    client: httpx.AsyncClient, parts: Parts, method: str, path: str
) -> None:
    response = await client.request(method, path, content=b"not even JSON")
    assert check_problem(response, 429)["type"].endswith(":overloaded")
    assert response.headers["retry-after"] == "1"
    assert not parts.calls


@pytest.mark.usefixtures("overloaded")
async def test_requests_without_the_encoder_are_not_shed(client: httpx.AsyncClient) -> None:
    assert (await client.get("/livez")).status_code == 200
    assert (await client.get("/sessions/s")).status_code == 200
    assert (await client.put("/pools/p", json={})).status_code == 200


def test_the_routes_that_encode_say_that_they_may_be_overloaded() -> None:
    paths = {path.rpartition("/")[2] for _, path in ENCODES}
    assert paths == {"turn", "completions", "rank", "rerank", "plan", "search", "scores"}
