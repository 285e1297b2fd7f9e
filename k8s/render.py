"""Render the kustomize resources from the chart: `make manifests`. A test compares them."""

import re
import sys
from pathlib import Path

import helm_python

HERE = Path(__file__).parent
FOLDERS = {
    "base": ("deployment", "pdb", "service", "serviceaccount"),
    "components/autoscaling": ("hpa",),
    "components/monitoring": ("prometheusrule", "servicemonitor"),
    "components/network-policy": ("networkpolicy",),
}
PARTS = ("autoscaling", "monitoring", "networkPolicy")
# Without Helm a resource belongs to no release.
RELEASE = re.compile(r" *(app.kubernetes.io/(instance|managed-by)|helm.sh/chart): .*\n")
HEADER = "# `make manifests` renders this file from k8s/chart; change it there.\n"


def main(folder: Path = HERE) -> None:
    """Write the resources, under `folder`."""
    on = {part: {"enabled": True} for part in PARTS}
    with helm_python.Chart.load(HERE / "chart") as chart:
        base = chart.render(name="turnwise")
        components = chart.render(on, name="turnwise")
    for subfolder, names in FOLDERS.items():
        rendered = base if subfolder == "base" else components
        for name in names:
            text = RELEASE.sub("", rendered[f"turnwise/templates/{name}.yaml"]).strip()
            path = folder / subfolder / f"{name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{HEADER}{re.sub(r' +$', '', text, flags=re.M)}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
