"""Measures how IoI depends on its depth and on its similarity matrices: many small runs, one table.

    python research/ioi_depth.py --data CORPORA [--config ioi_depth.toml] [--out runs/ioi-depth]

Trains the configuration with 1 to 7 blocks, and without each of the matrices M1, M2, M3; measures
every network on its validation problems (the best of its validations); and writes `results.json`,
`results.md` and `depth.png`. A run that is there already is not repeated, one that was interrupted
goes on.
"""

import argparse
import csv
import json
import time
from pathlib import Path

from matplotlib.figure import Figure

from turnwise.models.training.config import IoIConfig, read_toml
from turnwise.models.training.corpora import finder
from turnwise.models.training.run import train as train_one
from turnwise.models.training.trainer import Progress

CONFIG = Path(__file__).with_suffix(".toml")
MATRICES = {"M1": (2, 3), "M2": (1, 3), "M3": (1, 2)}
METRICS = ("average_rank", "r10@1", "mrr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/ioi-depth"))
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6, 7])
    parser.add_argument("--ablate", type=int, default=3, help="blocks of the ablation")
    options = parser.parse_args()

    config = IoIConfig.model_validate(read_toml(options.config))
    depth = [
        train(config, options, f"L = {blocks}", {"blocks": blocks}) for blocks in options.blocks
    ]
    ablation = [
        train(
            config, options, f"L = {options.ablate}, without {name}",
            {"blocks": options.ablate, "matrices": matrices},
        )
        for name, matrices in MATRICES.items()
    ]  # fmt: skip
    results = {"config": config.model_dump(mode="json"), "depth": depth, "ablation": ablation}
    (options.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    (options.out / "results.md").write_text(markdown(depth + ablation))
    draw(depth, options.blocks, options.out / "depth.png")
    print(markdown(depth + ablation))


def train(
    config: IoIConfig, options: argparse.Namespace, name: str, change: dict[str, object]
) -> dict[str, float | str]:
    """Train a variant, or take it up; return the metrics of its best validation."""
    network = config.network.model_copy(update=change)
    folder = options.out / name.replace(" ", "").replace(",", "-")
    done = folder / "seconds.json"
    if not done.is_file():
        start = time.perf_counter()
        train_one(
            config.model_copy(update={"network": network}),
            folder,
            find=finder(options.data),
            report=lambda progress: tell(name, progress),
            resume=True,
        )
        done.write_text(json.dumps(time.perf_counter() - start))
    return {"system": name, **best(folder / "curves.csv"), "seconds": json.loads(done.read_text())}


def tell(name: str, progress: Progress) -> None:
    if progress.validation:
        shown = "  ".join(f"{metric} {progress.validation[metric]:.3f}" for metric in METRICS)
        left = progress.seconds_left / 60
        print(f"{name}: step {progress.step}/{progress.steps}  {shown}  {left:.1f} min", flush=True)


def best(curves: Path) -> dict[str, float]:
    """Metrics of the validation with the best average rank."""
    steps: dict[str, dict[str, float]] = {}
    with curves.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            part, _, metric = row["name"].partition("/")
            if part == "validation":
                steps.setdefault(row["step"], {})[metric] = float(row["value"])
    return min(steps.values(), key=lambda metrics: metrics["average_rank"])


def markdown(rows: list[dict[str, float | str]]) -> str:
    lines = ["| | average rank of 10 | R10@1 | MRR | seconds |", "|---|---:|---:|---:|---:|"]
    for row in rows:
        numbers = " | ".join(f"{row[name]:.3f}" for name in METRICS)
        lines.append(f"| {row['system']} | {numbers} | {row['seconds']:.0f} |")
    return "\n".join(lines) + "\n"


def draw(rows: list[dict[str, float | str]], blocks: list[int], path: Path) -> None:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for metric in METRICS[1:]:
        axes.plot(blocks, [row[metric] for row in rows], marker="o", label=metric)
    axes.set(xlabel="interaction blocks L", ylabel="validation", xticks=blocks)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
