import asyncio
import sys
from asyncio.subprocess import PIPE

import pytest

WITHOUT_DESCRIPTORS = """
import asyncio, logging, resource
from turnwise.service.observe.descriptors import watch_descriptors
logging.basicConfig()

async def main():
    watching = asyncio.create_task(watch_descriptors(0.001))
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, 1))
    await asyncio.sleep(0.1)
    watching.cancel()

asyncio.run(main())
"""


@pytest.mark.anyio
async def test_a_shortage_is_logged_once_in_a_while_though_nothing_asks() -> None:
    command = [sys.executable, "-c", WITHOUT_DESCRIPTORS]
    process = await asyncio.create_subprocess_exec(*command, stderr=PIPE)
    _, err = await process.communicate()
    (line,) = err.decode().splitlines()
    assert line.endswith("no file descriptors are left: Too many open files (errno 24)")
