"""Marks by folder, and skips as errors.

Where a test finds what it needs:

- `fixtures/` has the fixtures of all rooms: tiny models, servers of Redis and Milvus, spans, logs.
- `support/` has plain helpers. `service.Live` is a running service and what clients say to it,
  `talk.Talk` a conversation that goes on through faults, `oracle.Oracle` the papers' equations in
  float64, and `waiting` waits for a state: no test waits for a time.
- The `conftest.py` of a room has what only its tests share: `service/` has services over HTTP,
  `unit/pools/` replicas in one process, `unit/api/` routes over parts that note their calls,
  `unit/models/training/` corpora and trained models, `service/console/` a page in a browser.
"""

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.processor import NO_VNNI

pytest_plugins = ["tests.fixtures.encoders", "tests.fixtures.observe", "tests.fixtures.redis"]

# Tests run side by side, and two threads of a tiny model would only wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"

# Without bytecode, each of the many processes would spend seconds on compiling.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Settings of whoever runs the tests are not theirs: they might name a Redis that is in use.
for variable in [name for name in os.environ if name.startswith("TURNWISE_")]:
    del os.environ[variable]

# A deadline would fail a test beside a busy machine, and random examples one that passed before:
# `make nightly` looks for new ones.
settings.register_profile("tests", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("nightly", max_examples=500, deadline=None)
settings.load_profile("tests")

TESTS = Path(__file__).parent
MARKS = {
    "service": "live",
    "service/console": "browser",
    "test_telemetry.py": "live",
    "unit/models/encoder/test_eight_bits.py": "train",
    "unit/models/encoder/test_export.py": "train",
    "unit/models/encoder/test_onnx.py": "train",
    "docs/test_examples.py": "docs",
    "deploy/test_alerts.py": "deploy",
    "deploy/test_kubernetes.py": "deploy",
    "deploy/test_wheel.py": "deploy",
}
"""The marks of all tests in a file or folder."""
MOST_PROCESSORS = 8
"""Most processors that the tests use: each process takes about a gigabyte."""
SERVERS = {"_shared_server", "_shared_cluster", "redis_server", "redis_cluster", "milvus_server"}
"""Fixtures that start a server: what needs one is marked `live`."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes more than there are processors: half of the time, tests wait for services.

    With `-n logical`, for tests without services, as many as there are processors.
    """
    processors = min(os.cpu_count() or 1, MOST_PROCESSORS)
    return processors if config.option.numprocesses == "logical" else processors + 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while modules are imported: that takes seconds and finds none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("live")
        place = item.path.relative_to(TESTS)
        for path, mark in MARKS.items():
            if place.is_relative_to(path):
                item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a skipped test fail where SKIPPED_TESTS=error: there, what tests need is installed.

    Nobody can install a processor, so a test that needs another one may be skipped.
    """
    report = yield
    is_error = os.environ.get("SKIPPED_TESTS") == "error" and NO_VNNI not in str(report.longrepr)
    if report.skipped and is_error:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped: {report.longrepr}"
    return report
