"""Trains the variants of a model, and prints a table with the validation of each.

    python research/ablations.py research/c3l.toml --data CORPORA [--out runs/c3l]

The file is a recipe of one stage with tables `[[variant]]`. A variant has a `name` and the values
that differ from the rest of the file. `after` names the variant whose model it starts from; without
`after` it starts from `base`. The models are in `OUT/NAME/model`, for `turnwise evaluate`, and the
table is in `OUT/results.md`. If you run the script again, it continues where it was interrupted. A
variant that is complete is not trained again, even if you change the one that it starts from.
"""

import argparse
import csv
from pathlib import Path

from turnwise.models.evaluation.report import Table
from turnwise.models.training.config import Config, overlay, read_toml, validated
from turnwise.models.training.corpora import finder
from turnwise.models.training.run import learner_of
from turnwise.models.training.trainer import OnProgress, StepReport, fit

BY_OWN_BASE = {"relative_rank", "short_term_rank"}
"""Metrics that differ with the base, which retrieves the candidates, as well as with the model."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out: Path = options.out or Path("runs") / options.recipe.stem
    measured = {}
    for name, config in variants(options.recipe, out).items():
        folder = out / name
        fit(learner_of(config, finder(options.data)), folder, report=reporter(name), resume=True)
        measured[name] = chosen(folder / "curves.csv")
    columns = ("variant", *next(iter(measured.values())))
    cells = ((name, *(f"{x:.3f}" for x in row.values())) for name, row in measured.items())
    table = Table("Validation", columns, tuple(cells)).markdown()
    (out / "results.md").write_text(table)
    print(table)


def variants(recipe: Path, out: Path) -> dict[str, Config]:
    """Return the configuration of each variant, by name."""
    shared = read_toml(recipe)
    configs = {}
    for values in shared.pop("variant"):
        name = values.pop("name")
        if before := values.pop("after", None):
            values["base"] = str(out / before / "model")
        configs[name] = validated(overlay(shared, values), str(recipe), f"variant {name}: ")
    return configs


def reporter(name: str) -> OnProgress:
    def report(progress: StepReport) -> None:
        if progress.step % 10 == 0 or progress.validation:
            minutes = progress.seconds_left / 60
            print(f"{name}: step {progress.step}/{progress.steps}, {minutes:.1f} min", flush=True)

    return report


def chosen(curves: Path) -> dict[str, float]:
    """Return the metrics, means over the files, of the validation that chose the model."""
    steps: dict[str, dict[str, float]] = {}
    with curves.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            part, _, metric = row["name"].partition("/")
            if part == "validation" and "/" not in metric:
                steps.setdefault(row["step"], {})[metric] = float(row["value"])
    # The run keeps the later one of two equal models.
    best = min(reversed(steps.values()), key=lambda metrics: next(iter(metrics.values())))
    return {name: value for name, value in best.items() if name not in BY_OWN_BASE}


if __name__ == "__main__":
    main()
