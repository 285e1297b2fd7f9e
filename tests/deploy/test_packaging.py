"""Images, compose and manifests agree with the code, and with each other."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import Distribution, distribution
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from prometheus_client.metrics_core import Metric

from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
DASHBOARD = ROOT / "k8s" / "chart" / "dashboards" / "turnwise.json"
RULES = ROOT / "k8s" / "chart" / "rules.yml"
BASE = ROOT / "k8s" / "base"
MONITORING = ROOT / "k8s" / "components" / "monitoring"
POLICY = ROOT / "k8s" / "components" / "network-policy" / "networkpolicy.yaml"
ADAPTER = ROOT / "k8s" / "components" / "autoscaling-queue" / "adapter-rule.yaml"
OVERLAYS = [ROOT / "k8s" / "overlays" / name for name in ("cpu", "gpu")]
IMAGE = ROOT / "docker" / "Dockerfile"
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
YAML = sorted(
    path
    for path in (COMPOSE, *WORKFLOWS, *ROOT.glob("docker/**/*.yml"), *ROOT.glob("k8s/**/*.y*ml"))
    if path.parent.name != "templates"
)

# Labels that Prometheus adds to those of the metric.
ADDED = {"instance", "job", "le", "namespace", "pod"}
# Series of Prometheus itself and of kube-state-metrics.
FOREIGN = {
    "up": ADDED,
    "kube_horizontalpodautoscaler_spec_max_replicas": {"horizontalpodautoscaler"} | ADDED,
    "kube_horizontalpodautoscaler_status_current_replicas": {"horizontalpodautoscaler"} | ADDED,
}


class Healthy(BaseHTTPRequestHandler):
    """Says that all is well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def compose(service: str) -> dict[str, Any]:
    definition: dict[str, Any] = load(COMPOSE)["services"][service]
    return definition


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = load(BASE / "deployment.yaml")["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    (only,) = pod()["containers"]
    assert isinstance(only, dict)
    return only


def version() -> str:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    number: str = tomllib.loads(project)["project"]["version"]
    return number


@cache
def series() -> dict[str, set[str]]:
    """From each name that Prometheus stores to its labels."""
    metrics = Metrics()
    metrics.requests.labels("POST", "/rank", 200)
    metrics.request_seconds.labels("POST", "/rank")
    metrics.pool_candidates.labels("default", "default")
    metrics.pool_version.labels("default", "default")
    metrics.turns.labels("default", "default", "answered")
    metrics.truncated_turns.labels("default")
    metrics.matched.labels("default", "default", "example")
    metrics.cascades.labels("default", "default", "reranked")
    metrics.chat_completions.labels("default", "default", "candidate")
    metrics.feedback.labels("default", "default", "default", "chosen")
    metrics.chosen_reciprocal_rank.labels("default", "default", "default")
    metrics.store_seconds.labels("milvus", "search", "ok")
    metrics.build.info({"version": "", "model": "", "runtime": ""})
    families: Iterator[Metric] = iter(metrics.registry.collect())
    return {
        sample.name: set(sample.labels) | ADDED for family in families for sample in family.samples
    }


def expressions() -> Iterator[tuple[str, str]]:
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", []):
            yield f"panel '{panel['title']}'", target["expr"]
    for group in load(RULES)["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for rule in load(ADAPTER)["rules"]["custom"]:
        yield "adapter", rule["seriesQuery"]
        filled = rule["metricsQuery"].replace("<<.Series>>", rule["seriesQuery"].split("{")[0])
        yield "adapter", filled.replace(", <<.LabelMatchers>>", "").replace("<<.GroupBy>>", "pod")


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_expressions_name_series_and_labels_that_exist(place: str, expression: str) -> None:
    bare = re.sub(r'"[^"]*"', "", expression)
    names = re.findall(r"\b(?:(?:turnwise|kube)_\w+|up\b)", bare)
    assert names, place
    known = series() | FOREIGN
    assert [name for name in names if name not in known] == []
    for name, matchers in re.findall(r"\b((?:turnwise|kube)_\w+|up)\{(.*?)\}", bare):
        assert set(re.findall(r"(\w+)\s*(?:=|!)", matchers)) <= known[name]
    grouped = re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", bare)))
    assert set(grouped) <= set.union(*(known[name] for name in names))


def test_the_dashboard_shows_every_metric() -> None:
    shown = " ".join(expr for place, expr in expressions() if place.startswith("panel"))
    families = {family.name for family in Metrics().registry.collect()}
    own = {name for name in families if name.startswith("turnwise_")}
    assert {name for name in own if not re.search(rf"\b{name}(_|\b)", shown)} == set()


@pytest.mark.parametrize("path", [*YAML, IMAGE], ids=relative)
def test_variables_are_settings(path: Path) -> None:
    named = set(re.findall(r"\bTURNWISE_([A-Z_]+)", path.read_text(encoding="utf-8")))
    assert {name for name in named if name.lower() not in Settings.model_fields} == set()


def test_files_that_compose_and_images_use_exist() -> None:
    build = compose("turnwise")["build"]
    assert (ROOT / build["context"] / build["dockerfile"]).is_file()
    mounted = [
        volume.split(":")[0]
        for name in load(COMPOSE)["services"]
        for volume in compose(name).get("volumes", [])
        if volume.startswith(".")
    ]
    assert mounted
    assert [path for path in mounted if not (ROOT / path).exists()] == []
    let_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert [path for path in let_in if not (ROOT / path).exists()] == []
    assert set(re.findall(r"(?<=COPY )[\w.]+", IMAGE.read_text())) <= {
        ".",
        "constraints.txt",
        "examples",
        "pyproject.toml",
    }


def test_ports_agree() -> None:
    (port,) = container()["ports"]
    number = port["containerPort"]
    image = IMAGE.read_text(encoding="utf-8")
    assert re.findall(r"TURNWISE_PORT=(\d+)", image) == [str(number)]
    assert f"EXPOSE {number}\n" in image
    assert compose("turnwise")["ports"] == [f"127.0.0.1:{number}:{number}"]
    (job,) = load(ROOT / "docker" / "prometheus.yml")["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"turnwise:{number}"]}]
    (ingress,) = load(POLICY)["spec"]["ingress"]
    assert ingress == {"ports": [{"protocol": "TCP", "port": number}]}
    (service,) = load(BASE / "service.yaml")["spec"]["ports"]
    (endpoint,) = load(MONITORING / "servicemonitor.yaml")["spec"]["endpoints"]
    probes = [container()[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    names = [service["targetPort"], *(probe["httpGet"]["port"] for probe in probes)]
    assert {*names, endpoint["port"], service["name"]} == {port["name"]}


def test_health_checks_pass_the_proxy_by() -> None:
    """Docker gives containers the proxy variables of its configuration."""
    (image,) = re.findall(r"^    CMD (\[.*)$", IMAGE.read_text("utf-8"), re.MULTILINE)
    proxy = {"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
    for command in (json.loads(image), compose("turnwise")["healthcheck"]["test"][1:]):
        with HTTPServer(("127.0.0.1", 0), Healthy) as server:
            Thread(target=server.handle_request, daemon=True).start()
            port = str(server.server_port)
            code = command[-1].replace("8000", port)
            env = os.environ | proxy | {"TURNWISE_PORT": port}
            subprocess.run([sys.executable, "-c", code], env=env, check=True)


def test_a_stopping_service_has_time_to_drain() -> None:
    settings = {each["name"]: each.get("value") for each in container()["env"]}
    drain = float(settings["TURNWISE_DRAIN_TIMEOUT"])
    command, seconds = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert pod()["terminationGracePeriodSeconds"] > drain + float(seconds)
    assert "TURNWISE_DRAIN_TIMEOUT" not in compose("turnwise")["environment"]
    grace = compose("turnwise")["stop_grace_period"].removesuffix("s")
    assert float(grace) > Settings.model_fields["drain_timeout"].default


def test_containers_drop_every_right() -> None:
    users = re.findall(r"^USER (\d+):(\d+)$", IMAGE.read_text(encoding="utf-8"), re.MULTILINE)
    security = pod()["securityContext"]
    assert users == [(str(security["runAsUser"]), str(security["runAsGroup"]))]
    assert security["runAsNonRoot"]
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert compose("turnwise")["read_only"]
    assert compose("turnwise")["cap_drop"] == ["ALL"]


def test_files_of_vectors_take_no_memory() -> None:
    assert "tmpfs" not in compose("turnwise")
    assert "tmp:/tmp" in compose("turnwise")["volumes"]
    (volume,) = (each for each in pod()["volumes"] if each["name"] == "tmp")
    assert volume["emptyDir"].keys() == {"sizeLimit"}  # without a medium, it is a disk


@pytest.mark.parametrize("service", load(COMPOSE)["services"])
def test_compose_publishes_on_loopback_only(service: str) -> None:
    ports = compose(service).get("ports", [])
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_compose_serves_the_runbook_to_which_its_alerts_link() -> None:
    links = {
        urlsplit(rule["annotations"]["runbook_url"])
        for group in load(RULES)["groups"]
        for rule in group["rules"]
    }
    pages = compose("pages")
    (served,) = {(link.netloc, link.path) for link in links}
    (port,) = pages["ports"]
    (volume,) = pages["volumes"]
    address, _, inside = port.rpartition(":")
    folder, mounted, _ = volume.split(":")
    assert served == (address, "/runbook.md")
    assert pages["command"][2:] == ["http.server", inside, "--directory", mounted]
    assert (ROOT / folder / "runbook.md").is_file()


def test_images_have_the_version_of_the_package() -> None:
    (image,) = load(OVERLAYS[1] / "kustomization.yaml")["images"]
    assert image == {"name": "turnwise", "newTag": f"{version()}-cuda"}
    assert container()["image"] == compose("turnwise")["image"] == f"turnwise:{version()}"


def test_the_node_package_has_the_version_of_the_package() -> None:
    client = ROOT / "clients" / "typescript"
    for name in ("package.json", "package-lock.json"):
        assert json.loads((client / name).read_text(encoding="utf-8"))["version"] == version()


# Licences of packages that a product under the Apache licence may link and pass on. MPL-2.0 asks
# only for the source of its own files. GPL, AGPL and unknown licences are missing on purpose.
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CNRI-Python",
    "ISC",
    "MIT",
    "MPL-2.0",
    "PSF-2.0",
    "Zlib",
}
# The names that packages without a licence expression (PEP 639) use.
SAID = {
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "ISC License": "ISC",
}


def runtime() -> dict[str, Distribution]:
    """The packages that services bring, directly or not, without the CUDA of a torch for GPUs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, Distribution] = {}
    waiting = [*project["dependencies"]]
    for extra in ("replica", "server", "encoder"):
        waiting += project["optional-dependencies"][extra]
    while waiting:
        required = Requirement(waiting.pop())
        name = canonicalize_name(required.name)
        if name == "turnwise" or name in found or name.startswith(("cuda-", "nvidia-")):
            continue
        package = found[name] = distribution(name)
        extras = [{"extra": extra} for extra in (required.extras or {""})]
        waiting += [
            line
            for line in package.requires or ()
            if (marker := Requirement(line).marker) is None or any(map(marker.evaluate, extras))
        ]
    return found


def licence(package: Distribution) -> str:
    """The licence as an SPDX expression, or whatever the package says."""
    metadata = package.metadata
    classified = [
        each.rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier") or []
        if each.startswith("License :: ")
    ]
    free = (metadata.get("License") or "").strip()
    said = metadata.get("License-Expression") or (free if "\n" not in free else "")
    said = said or " AND ".join(classified) or "unknown"
    return SAID.get(said, said)


def may_be_used(expression: str) -> bool:
    """All parts that AND joins are allowed; of parts that OR joins, one."""
    return all(
        any(choice.strip(" ()") in ALLOWED for choice in part.split(" OR "))
        for part in expression.split(" AND ")
    )


def test_every_package_of_the_service_has_an_allowed_licence() -> None:
    licences = {name: licence(package) for name, package in runtime().items()}
    assert len(licences) > 40
    assert {name: said for name, said in licences.items() if not may_be_used(said)} == {}
