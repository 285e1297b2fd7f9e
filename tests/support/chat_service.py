"""A service with OpenAI's chat API, which remembers what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.waiting import PATIENCE

TEXT = "Let me think about that."
ANSWER = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "large",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": TEXT},
            "finish_reason": "stop",
        }
    ],
}
END = "data: [DONE]\n\n"


def event(**delta: str) -> str:
    """An event of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "large"}
    return f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n"


EVENTS = [event(role="assistant", content=""), *(event(content=f"{w} ") for w in TEXT.split()), END]


@dataclass(slots=True)
class ChatService:
    """What the service answers, and what it was asked.

    Attributes:
        url: Its base URL, as clients take it.
        status: The status of its answers.
        answer: The body of an answer that is not streamed.
        events: The parts of a stream; the connection closes after the last one.
        released: While it is not set, the service waits before it answers.
        bodies: What it was asked.
        keys: The headers `Authorization` of these requests.
    """

    url: str
    status: int = 200
    answer: str = json.dumps(ANSWER)
    events: list[str] = field(default_factory=lambda: list(EVENTS))
    released: threading.Event = field(default_factory=threading.Event)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    def reset(self) -> None:
        """Let it answer as at first, and forget what it was asked."""
        fresh = ChatService(self.url)
        for name in ("status", "answer", "events", "bodies", "keys"):
            setattr(self, name, getattr(fresh, name))
        self.released.set()


@contextmanager
def chat_service() -> Iterator[ChatService]:
    """Run such a service on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            service.bodies.append(body)
            service.keys.append(self.headers.get("authorization"))
            assert service.released.wait(PATIENCE)
            streams = body.get("stream")
            self.send_response(service.status)
            self.send_header("content-type", "text/event-stream" if streams else "application/json")
            self.end_headers()
            with suppress(ConnectionError):  # clients go in the midst of a stream
                for part in service.events if streams else [service.answer]:
                    self.wfile.write(part.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service = ChatService(f"http://127.0.0.1:{server.server_port}/v1")
        service.released.set()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            service.released.set()
            server.shutdown()
            thread.join()
