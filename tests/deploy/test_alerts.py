"""Every alert fires in its fault and in no other, and the series of the faults exist."""

import re
import shutil
import subprocess
from itertools import chain, product
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from tests.deploy.test_packaging import FOREIGN, RULES, load, series
from turnwise.service.api import create_api
from turnwise.service.observe.metrics import Metrics, StoreOperation
from turnwise.service.settings import Settings

ROOT = Path(__file__).parents[2]
PROMTOOL = shutil.which("promtool") or ""
TESTS = Path(__file__).with_name("alerts.yml")
FAULTS: list[dict[str, Any]] = yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]
ALERTS = {rule["alert"] for group in load(RULES)["groups"] for rule in group["rules"]}
_NEVER: Any = None  # the application is not started
OPEN = {"instance", "job", "namespace", "route", "method", "status", "le", "runtime"}
"""Labels whose values do not all exist from the start."""


def emitted() -> list[tuple[str, dict[str, str]]]:
    """The series of all faults: names, and labels with their values."""
    lines = [line["series"] for fault in FAULTS for line in fault["input_series"]]
    named = [line.partition("{") for line in lines]
    return [(name, dict(re.findall(r'(\w+)="(.*?)"', rest))) for name, _, rest in named]


def samples(fault: dict[str, Any]) -> list[str]:
    asked = fault["promql_expr_test"]
    return [sample["labels"] for each in asked for sample in each["exp_samples"]]


@pytest.mark.skipif(not PROMTOOL, reason="promtool, of Prometheus, is not on PATH")
def test_alerts_fire_in_their_faults_and_in_no_other() -> None:
    ran = subprocess.run([PROMTOOL, "test", "rules", TESTS], capture_output=True, text=True)  # noqa: PLW1510
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_fault_in_which_it_fires() -> None:
    fired = re.findall(r'alertname="(\w+)"', " ".join(chain.from_iterable(map(samples, FAULTS))))
    assert set(fired) == ALERTS


def test_a_blip_touches_every_series_that_an_alert_is_about() -> None:
    (normal, blip) = FAULTS[:2]
    assert not samples(normal)
    assert not samples(blip)
    named = {name for name, _ in emitted()}
    for fault in (normal, blip):
        here = {line["series"].partition("{")[0] for line in fault["input_series"]}
        losses = {"turnwise_redis_losses_total", "turnwise_journal_lines_lost_total"}
        assert named - here <= losses  # a loss is no blip


def test_series_of_faults_are_those_that_the_service_has() -> None:
    values: dict[tuple[str, str], set[str]] = {}
    metrics = Metrics()
    for operation, result in product(get_args(StoreOperation), ("ok", "unavailable", "cancelled")):
        metrics.store_seconds.labels("milvus", operation, result)
    for family in metrics.registry.collect():
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault((sample.name, label), set()).add(value)
    routes = set(create_api(Settings(), Metrics(), _NEVER).openapi()["paths"])
    for name, labels in emitted():
        if name in FOREIGN:
            assert set(labels) <= FOREIGN[name]
            continue
        assert name in series(), name
        assert set(labels) <= series()[name], (name, labels)
        for label, value in labels.items():
            if label == "route":
                assert value in routes
            elif label == "le":
                assert value in _bounds(name) | {"+Inf"}
            elif label not in OPEN:
                assert value in values[name, label], (name, label)


def _bounds(name: str) -> set[str]:
    metrics = Metrics()
    metrics.request_seconds.labels("POST", "/rank").observe(0)
    return {
        sample.labels["le"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name
    }
