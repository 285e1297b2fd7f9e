"""Trains the variants of a model, and prints a table with the best validation of each.

    python research/ablations.py research/c3l.toml --data CORPORA [--out runs/c3l]

The file is a recipe of one stage with tables `[[variant]]`. A variant has a `name` and the values
that differ from the rest of the file. `after` names the variant whose model it starts from; without
`after` it starts from `base`. The models are in `OUT/NAME/model`, for `turnwise evaluate`, and the
table is in `OUT/results.md`. If you run the script again, it continues where it was interrupted.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

from turnwise.models.training.config import Config, EncoderConfig, IoIConfig, overlaid, read_toml
from turnwise.models.training.corpora import finder
from turnwise.models.training.run import train
from turnwise.models.training.trainer import Progress, Report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out: Path = options.out or Path("runs") / options.recipe.stem
    rows = []
    for name, config in variants(options.recipe, out).items():
        folder = out / name
        train(config, folder, find=finder(options.data), report=reporter(name), resume=True)
        rows.append({"variant": name} | best(folder / "curves.csv"))
    (out / "results.md").write_text(markdown(rows))
    print(markdown(rows))


def variants(recipe: Path, out: Path) -> dict[str, Config]:
    """Return the configuration of each variant, by name."""
    shared = read_toml(recipe)
    return {values.pop("name"): configured(shared, values, out) for values in shared.pop("variant")}


def configured(shared: dict[str, Any], values: dict[str, Any], out: Path) -> Config:
    if before := values.pop("after", None):
        values["base"] = str(out / before / "model")
    values = overlaid(shared, values)
    schema = IoIConfig if values["kind"] == "ioi" else EncoderConfig
    return schema.model_validate(values)


def reporter(name: str) -> Report:
    def report(progress: Progress) -> None:
        if progress.step % 10 == 0 or progress.validation:
            minutes = progress.seconds_left / 60
            print(f"{name}: step {progress.step}/{progress.steps}, {minutes:.1f} min", flush=True)

    return report


def best(curves: Path) -> dict[str, float]:
    """Return the metrics, means over the files, of the validation that chose the model."""
    steps: dict[str, dict[str, float]] = {}
    with curves.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            part, _, metric = row["name"].partition("/")
            if part == "validation" and "/" not in metric:
                steps.setdefault(row["step"], {})[metric] = float(row["value"])
    return min(steps.values(), key=lambda metrics: next(iter(metrics.values())))


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [" | ".join(rows[0]), "|".join("---" for _ in rows[0])]
    lines += [
        " | ".join(f"{x:.3f}" if isinstance(x, float) else x for x in row.values()) for row in rows
    ]
    return "".join(f"| {line} |\n" for line in lines)


if __name__ == "__main__":
    main()
