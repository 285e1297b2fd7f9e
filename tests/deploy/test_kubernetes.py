"""Chart and overlays, rendered by Helm and kubectl, and checked against the schemas of clusters."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_packaging import COMPOSE, RULES, load, version
from tests.docs.pages import blocks
from turnwise.service.api import create_api
from turnwise.service.observe.metrics import Metrics
from turnwise.service.settings import Settings

K8S = Path(__file__).parents[2] / "k8s"
KUBECTL = shutil.which("kubectl", path=Path(sys.executable).parent) or shutil.which("kubectl") or ""
CLUSTERS = ["1.27", "1.37"]
"""The oldest version of Kubernetes that the chart takes, and the newest with schemas."""
COMPONENTS = ["autoscaling-queue", "monitoring", "network-policy"]
EVERYTHING = {
    "autoscaling": {"enabled": True, "queueTexts": 8},
    "monitoring": {"enabled": True},
    "networkPolicy": {"enabled": True},
}
INGRESS = {"enabled": True, "host": "turnwise.example", "tlsSecret": "tls", "className": "nginx"}
VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "gpu": {"gpu": True, "nodeSelector": {"pool": "gpu"}},
    "trial": EVERYTHING | {"redis": {"trial": True}, "ingress": INGRESS, "candidates": 10_000},
    "own": {
        "cpu": "1500m",
        "env": {
            "TURNWISE_MODEL": "/models/shop",
            "TURNWISE_DRAIN_TIMEOUT": "60",
            "TURNWISE_HOST": "::",
        },
        "image": {"repository": "registry.example/turnwise", "tag": "mine", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "ingress": {"enabled": True, "host": "a.example", "annotations": {"a.example/b": "c"}},
        "monitoring": {"enabled": True, "dashboard": True, "labels": {"release": "prometheus"}},
        "networkPolicy": {"enabled": True, "egress": [{"ports": [{"port": 4318}]}]},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "podLabels": {"team": "shop"},
        "podAnnotations": {"a.example/inject": "true"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}
                    ]
                }
            }
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "priorityClassName": "high",
        "resources": {"limits": {"cpu": 2, "memory": "2Gi"}},
        "envFrom": [{"secretRef": {"name": "more"}}],
        "podSecurityContext": {"runAsUser": None, "fsGroup": None, "runAsGroup": None},
        "securityContext": {"readOnlyRootFilesystem": False},
        "serviceAccount": {"annotations": {"a.example/role": "reader"}},
        "service": {
            "type": "LoadBalancer",
            "port": 8080,
            "nodePort": 30080,
            "annotations": {"a.example/internal": "true"},
            "loadBalancerSourceRanges": ["10.0.0.0/8"],
        },
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
    },
}
Objects = dict[tuple[str, str], dict[str, Any]]
_NEVER: Any = None  # the application is not started

helm = pytest.mark.skipif(
    not find_spec("helm_python"), reason="the package helm-python-sdk is not installed"
)
kubectl = pytest.mark.skipif(not KUBECTL, reason="kubectl is not on PATH")


def objects(texts: str) -> Objects:
    """The resources by kind and name."""
    found = [each for each in yaml.safe_load_all(texts) if each]
    named = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(named) == len(found)
    return named


def chart(values: dict[str, Any], release: str = "turnwise") -> Objects:
    import helm_python

    with helm_python.Chart.load(K8S / "chart") as loaded:
        loaded.validate_schema(values)
        rendered = loaded.render(values, name=release, namespace="ns")
    return objects("\n---\n".join(rendered[name] for name in rendered if name.endswith(".yaml")))


def kustomize(folder: Path) -> Objects:
    ran = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True)  # noqa: PLW1510
    assert ran.returncode == 0, ran.stderr
    return objects(ran.stdout)


def container(found: Objects, name: str = "turnwise") -> dict[str, Any]:
    (only,) = found["Deployment", name]["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def environment(found: Objects, name: str = "turnwise") -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in container(found, name)["env"]}


def check(resource: dict[str, Any], cluster: str) -> None:
    """Raise an error if a cluster would reject a resource, or ignore a part of it."""
    if resource["apiVersion"].startswith("monitoring.coreos.com/"):
        from cloudcoil.models.prometheus_operator import v1

        fitted = getattr(v1, resource["kind"]).model_validate(resource)
        kept = fitted.model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert kept == resource  # a field that the schema lacks is dropped
    else:
        from kubernetes_validate import validate

        validate(resource, cluster, strict=True)


def without_release(resource: Any) -> Any:
    """The resource as kustomize has it, without the labels of a release of Helm."""
    if isinstance(resource, list):
        return [without_release(each) for each in resource]
    if not isinstance(resource, dict):
        return resource
    labels = {"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"}
    return {key: without_release(value) for key, value in resource.items() if key not in labels}


@helm
def test_the_chart_passes_the_linter() -> None:
    import helm_python

    report = helm_python.lint(K8S / "chart", strict=True)
    assert report["errors"] == []
    assert {each["error"] for each in report["messages"]} <= {"icon is recommended"}


@helm
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_clusters_accept_what_the_chart_renders(values: dict[str, Any], cluster: str) -> None:
    found = chart(values)
    assert ("Deployment", "turnwise") in found
    for resource in found.values():
        check(resource, cluster)


@helm
def test_the_kustomize_resources_are_those_of_the_chart(tmp_path: Path) -> None:
    subprocess.run([sys.executable, K8S / "render.py", tmp_path], check=True)
    rendered = [*tmp_path.rglob("*.yaml")]
    assert rendered
    for path in rendered:
        committed = (K8S / path.relative_to(tmp_path)).read_text(encoding="utf-8")
        assert committed == path.read_text(encoding="utf-8"), "run `make manifests`"


@helm
@kubectl
@pytest.mark.parametrize(
    ("overlay", "components", "values"),
    [
        ("cpu", [], {}),
        ("gpu", COMPONENTS, EVERYTHING | {"gpu": True}),
        ("cpu", ["autoscaling"], {"autoscaling": {"enabled": True}}),
    ],
)
def test_overlays_and_chart_render_the_same(
    overlay: str, components: list[str], values: dict[str, Any], tmp_path: Path
) -> None:
    shutil.copytree(K8S, tmp_path / "k8s")
    (tmp_path / "kustomization.yaml").write_text(
        json.dumps(
            {
                "resources": [f"k8s/overlays/{overlay}"],
                "components": [f"k8s/components/{name}" for name in components],
            }
        )
    )
    assert kustomize(tmp_path) == without_release(chart(values))


@helm
@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"unknown": 1}, "unknown"),
        ({"env": {"TURNWISE_MODEL": 3}}, "TURNWISE_MODEL"),
        ({"env": {"TURNWISE_REDIS_URL": "redis://here"}}, "TURNWISE_REDIS_URL"),
        ({"ingress": {"enabled": True}}, "ingress/host"),
        ({"podLabels": {"app.kubernetes.io/name": "other"}}, "app.kubernetes.io/name"),
        ({"affinity": {"podAfinity": {}}}, "podAfinity"),
        ({"securityContext": {"fsGroup": 1}}, "fsGroup"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], named: str) -> None:
    from helm_python import HelmError

    with pytest.raises(HelmError, match=named):
        chart(values)


def test_the_schema_has_every_value_and_no_other() -> None:
    def names(values: object, schema: dict[str, Any], place: str = "") -> Iterator[str]:
        known = schema.get("properties")
        if known and schema["additionalProperties"] is False:
            assert isinstance(values, dict)
            assert set(values) == set(known) - {"global"}, place
            for name in values:
                yield from names(values[name], known[name], f"{place}.{name}")
        yield place

    schema = json.loads((K8S / "chart" / "values.schema.json").read_text(encoding="utf-8"))
    assert len(list(names(load(K8S / "chart" / "values.yaml"), schema))) > 30


def test_the_chart_has_the_version_of_the_package() -> None:
    about = load(K8S / "chart" / "Chart.yaml")
    assert about["version"] == about["appVersion"] == version()
    assert about["kubeVersion"] == f">={CLUSTERS[0]}.0-0"


@helm
def test_a_pod_and_its_service_are_what_the_values_say() -> None:
    values = VALUES["own"]
    found = chart(values)
    template = found["Deployment", "turnwise"]["spec"]["template"]
    assert template["metadata"]["annotations"] == values["podAnnotations"]
    assert template["metadata"]["labels"].items() >= values["podLabels"].items()
    copied = ("affinity", "priorityClassName", "imagePullSecrets", "tolerations")
    assert [template["spec"][name] for name in copied] == [values[name] for name in copied]
    pod = container(found)
    assert environment(found).items() >= values["env"].items()
    assert pod["envFrom"] == values["envFrom"]
    assert pod["resources"]["limits"] == values["resources"]["limits"]
    assert pod["securityContext"].items() >= values["securityContext"].items()
    assert template["spec"]["volumes"][-1:] == values["volumes"]
    assert pod["volumeMounts"][-1:] == values["volumeMounts"]
    service = found["Service", "turnwise"]
    assert service["metadata"]["annotations"] == values["service"]["annotations"]
    assert service["spec"]["type"] == values["service"]["type"]
    assert service["spec"]["ports"][0]["port"] == values["service"]["port"]
    account = found["ServiceAccount", "turnwise"]
    assert account["metadata"]["annotations"] == values["serviceAccount"]["annotations"]


@helm
def test_by_default_the_chart_has_room_for_20_000_candidates() -> None:
    found = chart({})
    assert environment(found)["TURNWISE_MAX_POOL_SIZE"] == "20000"
    assert container(found)["resources"]["limits"] == {"memory": "935Mi"}


@helm
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("candidates", [1, 50_000_000])
def test_memory_follows_from_the_candidates(candidates: int, gpu: bool) -> None:
    process = 1.2e9 if gpu else 0.7e9
    found = chart({"candidates": candidates, "gpu": gpu, "redis": {"trial": True}})

    def megabytes(resources: dict[str, Any], bound: str) -> int:
        return int(resources[bound]["memory"].removesuffix("Mi"))

    service = container(found)["resources"]
    assert megabytes(service, "requests") * 2**20 >= process + 1200 * candidates
    assert 1.5 > megabytes(service, "limits") * 2**20 / (process + 2300 * candidates) >= 1.2
    assert environment(found)["TURNWISE_MAX_POOL_SIZE"] == str(candidates)
    (redis,) = found["StatefulSet", "turnwise-redis"]["spec"]["template"]["spec"]["containers"]
    most = redis["command"][redis["command"].index("--maxmemory") + 1]
    assert most == f"{megabytes(redis['resources'], 'requests')}mb"
    assert int(most.removesuffix("mb")) * 2**20 >= 1000 * candidates
    assert megabytes(redis["resources"], "limits") == 2 * megabytes(redis["resources"], "requests")


@helm
def test_a_redis_for_trials_is_that_of_compose_and_is_reached() -> None:
    found = chart(VALUES["trial"], "shop")
    assert environment(found, "shop-turnwise")["TURNWISE_REDIS_URL"] == (
        "redis://shop-turnwise-redis:6379/0"
    )
    pod = found["StatefulSet", "shop-turnwise-redis"]["spec"]["template"]
    (redis,) = pod["spec"]["containers"]
    assert redis["image"] == load(COMPOSE)["services"]["redis"]["image"]
    service = found["Service", "shop-turnwise-redis"]["spec"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] == redis["ports"][0]["name"]
    policy = found["NetworkPolicy", "shop-turnwise-redis"]["spec"]
    assert policy["podSelector"]["matchLabels"] == pod["metadata"]["labels"]
    labels = found["Deployment", "shop-turnwise"]["spec"]["template"]["metadata"]["labels"]
    assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": labels}}]


@helm
def test_releases_select_their_own_pods() -> None:
    found = chart(EVERYTHING, "shop")
    deployment = found["Deployment", "shop-turnwise"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == "shop"
    service = found["Service", "shop-turnwise"]
    for selector in (
        deployment["selector"]["matchLabels"],
        service["spec"]["selector"],
        found["PodDisruptionBudget", "shop-turnwise"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy", "shop-turnwise"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector == labels
    monitor = found["ServiceMonitor", "shop-turnwise"]["spec"]["selector"]["matchLabels"]
    assert monitor.items() <= service["metadata"]["labels"].items()
    scaled = found["HorizontalPodAutoscaler", "shop-turnwise"]["spec"]["scaleTargetRef"]
    assert scaled == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop-turnwise"}


@helm
def test_the_alerts_of_the_chart_are_those_of_compose_with_a_runbook_elsewhere() -> None:
    monitoring = {"enabled": True, "runbook": "https://docs.example/runbook/"}
    rules = chart({"monitoring": monitoring})["PrometheusRule", "turnwise"]["spec"]["groups"]
    in_compose = "http://127.0.0.1:8080/runbook.md"
    assert in_compose not in str(rules)
    moved = str(load(RULES)["groups"]).replace(in_compose, "https://docs.example/runbook/")
    assert str(rules) == moved


@helm
def test_the_ingress_leads_to_what_clients_call_and_to_nothing_else() -> None:
    spec = chart(VALUES["trial"])["Ingress", "turnwise"]["spec"]
    assert spec["tls"] == [{"hosts": ["turnwise.example"], "secretName": "tls"}]
    (rule,) = spec["rules"]
    prefixes = [path["path"] for path in rule["http"]["paths"]]
    api = set(create_api(Settings(), Metrics(), _NEVER).openapi()["paths"])
    inside = {path for path in api if not path.startswith(tuple(prefixes))}
    assert inside == {"/livez", "/readyz", "/metrics"}
    assert all(any(path.startswith(prefix) for path in api) for prefix in prefixes)


@helm
def test_pods_reach_dns_and_redis_wherever_they_are() -> None:
    policy = {"enabled": True, "redisPorts": [6400], "egress": [{"ports": [{"port": 4318}]}]}
    dns, redis, more = chart({"networkPolicy": policy})["NetworkPolicy", "turnwise"]["spec"][
        "egress"
    ]
    assert {(each["protocol"], each["port"]) for each in dns["ports"]} >= {("UDP", 53), ("TCP", 53)}
    assert redis == {"ports": [{"protocol": "TCP", "port": 6400}]}
    assert "to" not in dns
    assert more == policy["egress"][0]


@helm
def test_secrets_are_only_referred_to() -> None:
    found = container(chart({"secret": "mine"}))["env"]
    assert [each.get("valueFrom") for each in found if "valueFrom" in each][:2] == [
        {"secretKeyRef": {"name": "mine", "key": "TURNWISE_REDIS_URL"}},
        {"secretKeyRef": {"name": "mine", "key": "TURNWISE_API_KEYS", "optional": True}},
    ]


@helm
def test_the_example_of_a_candidate_store_is_accepted() -> None:
    page = (K8S.parent / "docs" / "candidate-stores.md").read_text(encoding="utf-8")
    (values,) = (block.text for block in blocks(page) if block.language == "yaml")
    found = chart(yaml.safe_load(values))
    *_, port = found["NetworkPolicy", "turnwise"]["spec"]["egress"]
    assert port == {"ports": [{"protocol": "TCP", "port": 19530}]}
    for resource in found.values():
        check(resource, CLUSTERS[-1])


@helm
def test_the_example_of_an_encoder_tier_is_accepted() -> None:
    page = (K8S.parent / "docs" / "encoder-tier.md").read_text(encoding="utf-8")
    tier, replicas = (yaml.safe_load(b.text) for b in blocks(page) if b.language == "yaml")
    assert container(chart(tier))["args"] == ["turnwise", "serve", "--encoder-only"]
    *_, port = chart(replicas)["NetworkPolicy", "turnwise"]["spec"]["egress"]
    assert port == {"ports": [{"protocol": "TCP", "port": 8000}]}


def test_the_example_of_a_nightly_backup_is_accepted() -> None:
    page = (K8S.parent / "docs" / "backup.md").read_text(encoding="utf-8")
    (job,) = (yaml.safe_load(block.text) for block in blocks(page) if block.language == "yaml")
    check(job, CLUSTERS[-1])
    check(job, CLUSTERS[0])
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"registry.example/turnwise:{version()}"


@kubectl
def test_the_examples_of_the_page_are_accepted(tmp_path: Path) -> None:
    page = (K8S.parent / "docs" / "operate.md").read_text(encoding="utf-8")
    values, overlay, pod = (block.text for block in blocks(page) if block.language == "yaml")
    check(yaml.safe_load(pod), CLUSTERS[-1])
    shutil.copytree(K8S, tmp_path / "k8s")
    mine = tmp_path / "k8s" / "overlays" / "mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(overlay)
    for found in (chart(yaml.safe_load(values)), kustomize(mine)):
        assert container(found)["image"] == f"registry.example/turnwise:{version()}"
        assert environment(found)["TURNWISE_SESSION_TTL"] == "3600"
        for resource in found.values():
            check(resource, CLUSTERS[-1])
