"""A stub of a chat model for `chat_model.py`: it returns random lines of `replies.jsonl`.

python examples/stub_chat_model.py 8001
"""

import json
import random
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPLIES = Path(__file__).with_name("replies.jsonl")


def completions(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request for chat completions."""
    lines = REPLIES.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in random.sample(lines, request.get("n", 1))]
    choices = [
        {"index": n, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for n, text in enumerate(texts)
    ]
    return {"object": "chat.completion", "model": request["model"], "choices": choices}


class Handler(BaseHTTPRequestHandler):
    """Answers `POST /v1/chat/completions`."""

    def do_POST(self) -> None:
        """Answer with samples."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(completions(request)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
