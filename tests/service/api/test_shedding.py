import httpx
import pytest

from tests.service.api.conftest import Parts
from tests.service.api.test_problems import ALL, check_problem
from turnwise.service.errors import Overloaded

pytestmark = pytest.mark.anyio

ENCODES = ["/sessions/s/turn", "/rank", "/plan", "/pools/p/search"]


@pytest.fixture
def overloaded(parts: Parts) -> None:
    parts.outcomes["check"] = Overloaded("7 texts wait for the encoder already")


@pytest.mark.usefixtures("overloaded")
@pytest.mark.parametrize("path", ENCODES)
async def test_a_request_that_would_wait_too_long_is_rejected_unread(
    client: httpx.AsyncClient, parts: Parts, path: str
) -> None:
    response = await client.post(path, content=b"not even JSON")
    assert check_problem(response, 429)["type"].endswith(":overloaded")
    assert response.headers["retry-after"] == "1"
    assert not parts.calls


@pytest.mark.usefixtures("overloaded")
async def test_requests_without_the_encoder_are_not_shed(client: httpx.AsyncClient) -> None:
    assert (await client.get("/livez")).status_code == 200
    assert (await client.get("/sessions/s")).status_code == 200
    assert (await client.put("/pools/p", json={})).status_code == 200


def test_every_route_that_posts_is_among_them() -> None:
    posted = {path.rpartition("/")[2] for method, path in ALL if method == "POST"}
    assert posted == {path.rpartition("/")[2] for path in ENCODES}
