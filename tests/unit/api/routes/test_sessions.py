import threading

import httpx
import pytest
from starlette.responses import Response

from turnwise.service.api.routes import sessions

pytestmark = pytest.mark.anyio


async def test_a_thread_writes_a_score_matrix_as_json(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[int]()
    answer = sessions.answer

    def watched(value: object) -> Response:
        threads.append(threading.get_ident())
        return answer(value)

    monkeypatch.setattr(sessions, "answer", watched)
    response = await client.get("/sessions/s/scores", params={"ids": ["c"]})
    assert response.json()["scores"] == [[0.5]]
    assert len(threads) == 1
    assert threading.get_ident() not in threads
