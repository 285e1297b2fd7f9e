"""Trains the variants of a model, measures each, and prints a table with standard errors.

    python research/ablations.py research/c3l.toml --data CORPORA --small

The file is a recipe of one stage with tables `[[variant]]`. A variant has a `name` and the values
that differ from the rest of the file. `after` names the variant whose model it starts from; without
`after` it starts from `base`. `against` names the variant that it is compared with, on the same
examples. `[measure]` names the held-out dialogues. With `--small`, the values of `[small]` replace
those of the file, for runs of some minutes; without it the runs have their full length, for a GPU.

The models are in `OUT/NAME/model`, for `turnwise evaluate`, and the table is in `OUT/results.md`.
If you run the script again, it continues where it was interrupted. A variant that is complete is
not trained again, even if you change the one that it starts from.
"""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from turnwise.models.data import Dialogue
from turnwise.models.dialogue_files import read_dialogues
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.evaluation.long_term import chain_outcomes, make_goal_sets
from turnwise.models.evaluation.metrics import ranks_of
from turnwise.models.evaluation.next_utterance import ranks_among_length
from turnwise.models.evaluation.ranking import Building, RankingExample, build_ranking
from turnwise.models.evaluation.report import Table
from turnwise.models.evaluation.significance import Outcomes
from turnwise.models.evaluation.split import encode_split, make_split
from turnwise.models.evaluation.systems import recommended_system
from turnwise.models.rerankers.ioi.model import IoI
from turnwise.models.scores import Aggregation
from turnwise.models.training.config import Config, IoIConfig, overlay, read_toml, validate_table
from turnwise.models.training.corpora import Find, finder
from turnwise.models.training.run import make_learner
from turnwise.models.training.trainer import OnProgress, StepReport, fit

AGGREGATIONS = {
    "mean": Aggregation("mean"),
    "last 2 rows": Aggregation("last_rows", 2),
    "MaxSim": Aggregation("max_sim"),
}
NOTE = (
    "Differences are those from the variant in brackets, on the same examples; ± is a standard "
    "error. A difference of less than two standard errors may be chance."
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A run, and the names of the variants that it starts from and is compared with."""

    config: Config
    after: str | None
    against: str | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--small", action="store_true", help="short runs")
    parser.add_argument("--variants", nargs="+", help="only these; all if left out")
    options = parser.parse_args()
    out: Path = options.out or Path("runs") / options.recipe.stem
    find = finder(options.data)
    listed = read_variants(options.recipe, out, small=options.small)
    dialogues = read_measured(options.recipe, find, small=options.small)
    measured: dict[str, dict[str, Outcomes]] = {}
    table = ""
    for name in options.variants or listed:
        config = listed[name].config
        model = fit(make_learner(config, find), out / name, report=reporter(name), resume=True)
        measured[name] = measure(config, model, dialogues)
        title = "Short runs" if options.small else "Runs of full length"
        table = make_table(title, listed, measured, out).markdown()
        (out / "results.md").write_text(table)
    print(table)


def read_variants(recipe: Path, out: Path, *, small: bool) -> dict[str, Variant]:
    """Return the variants by name."""
    shared = read_shared(recipe, small=small)
    del shared["measure"]
    found = {}
    for values in shared.pop("variant"):
        name = values.pop("name")
        after = values.pop("after", None)
        against = values.pop("against", None)
        if after:
            values["base"] = str(out / after / "model")
        config = validate_table(overlay(shared, values), str(recipe), f"variant {name}: ")
        found[name] = Variant(config, after, against)
    return found


def read_measured(recipe: Path, find: Find, *, small: bool) -> list[Dialogue]:
    """Return the dialogues that measure the variants."""
    how = read_shared(recipe, small=small)["measure"]
    return list(read_dialogues(find(how["path"])))[: how["dialogues"]]


def read_shared(recipe: Path, *, small: bool) -> dict[str, Any]:
    """Return the values of a recipe, with those of `[small]` for short runs."""
    values = read_toml(recipe)
    short = values.pop("small")
    return overlay(values, short) if small else values


def measure(config: Config, model: Path, dialogues: Sequence[Dialogue]) -> dict[str, Outcomes]:
    """Return what a model reached on each example, by metric."""
    if isinstance(config, IoIConfig):
        return measure_ioi(IoI.load(model), dialogues)
    return measure_encoder(UtteranceEncoder(model), dialogues)


def measure_encoder(
    encoder: UtteranceEncoder, dialogues: Sequence[Dialogue]
) -> dict[str, Outcomes]:
    """Return the ranks of next utterances, and of true orders of three goals among six."""
    split = make_split(dialogues, full_pool=False)
    encoded = encode_split(encoder, split)
    # Without pairs there is one system, which has the first column.
    systems = AGGREGATIONS if encoder.kind.paired else {"mean": Aggregation("mean")}
    lengths = split.lengths.astype(str)
    reached = {}
    for name, aggregation in systems.items():
        ranks = ranks_among_length(recommended_system(encoded, aggregation), split)
        reached[name] = Outcomes(ranks.expected, lengths, split.dialogues)
    return {**reached, "chain of goals": chain_outcomes(encoder, make_goal_sets(dialogues))}


def measure_ioi(network: IoI, dialogues: Sequence[Dialogue]) -> dict[str, Outcomes]:
    """Return R_10@1 and the reciprocal rank of a true response among nine random ones."""
    examples = list(build_ranking(dialogues, Building(context=1)))

    def scores(example: RankingExample) -> np.ndarray[Any, np.dtype[np.float32]]:
        return network.scores([said.text for said in example.context], example.candidates)

    ranks = ranks_of(map(scores, examples), [example.labels.index(1) for example in examples])
    alone = np.full(len(examples), "")
    dialogue = np.arange(len(examples))
    reached = {"R_10@1": ranks.within(1), "MRR": ranks.reciprocal}
    return {name: Outcomes(values, alone, dialogue) for name, values in reached.items()}


def make_table(
    title: str, listed: dict[str, Variant], measured: dict[str, dict[str, Outcomes]], out: Path
) -> Table:
    """Return a row for each measured variant: each metric, and its difference."""
    metrics = list(dict.fromkeys(metric for each in measured.values() for metric in each))
    columns = [column for metric in metrics for column in (metric, "difference")]
    rows = []
    for name, reached in measured.items():
        against = listed[name].against
        label = f"{name} ({against})" if against else name
        compared = measured.get(against or "", {})
        pairs = [(reached.get(metric), compared.get(metric)) for metric in metrics]
        cells = [cell for pair in pairs for cell in (write(pair[0]), write_difference(*pair))]
        rows.append((label, str(count_steps(name, listed, out)), *cells))
    return Table(title, ("variant", "steps", *columns), tuple(rows), NOTE)


def write_difference(reached: Outcomes | None, other: Outcomes | None) -> str:
    """Return the paired difference of two variants; nothing if one of them has no such metric."""
    if reached is None or other is None:
        return ""
    difference = replace(reached, values=reached.values - other.values)
    return write_mean(difference, choose_digits(reached), sign="+")


def write(reached: Outcomes | None) -> str:
    """Return a mean and its standard error; nothing if the variant has no such metric."""
    return "" if reached is None else write_mean(reached, choose_digits(reached))


def write_mean(outcomes: Outcomes, digits: int, sign: str = "") -> str:
    """Return a mean and its standard error."""
    return f"{outcomes.mean:{sign}.{digits}f} ± {outcomes.standard_error:.{digits}f}"


def choose_digits(reached: Outcomes) -> int:
    """Return the decimals of a metric: three for a share, two for a rank."""
    return 3 if reached.values.max() <= 1 else 2


def count_steps(name: str, listed: dict[str, Variant], out: Path) -> int:
    """Return the steps of a variant, with those of the variants that it starts from."""
    with (out / name / "curves.csv").open(encoding="utf-8", newline="") as file:
        own = max(int(row["step"]) for row in csv.DictReader(file))
    before = listed[name].after
    return own + (count_steps(before, listed, out) if before else 0)


def reporter(name: str) -> OnProgress:
    def report(progress: StepReport) -> None:
        if progress.step % 10 == 0 or progress.validation:
            minutes = progress.seconds_left / 60
            print(f"{name}: step {progress.step}/{progress.steps}, {minutes:.1f} min", flush=True)

    return report


if __name__ == "__main__":
    main()
