"""The files that a run writes: the best model, a checkpoint to resume from, and its curves."""

import csv
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file
from safetensors.torch import save_model as save_weights
from sentence_transformers import SentenceTransformer
from torch import nn

from turnwise.models.card import CARD
from turnwise.models.encoder import load_sentence_transformer, transformer_of
from turnwise.models.errors import TrainingError
from turnwise.models.evaluation.report import Line, draw_lines, figure_height
from turnwise.models.heads import RoleHeads
from turnwise.models.training.config import REMOVED, EncoderConfig, Section, renamed
from turnwise.models.training.layout import write_older_layout

Schedule = torch.optim.lr_scheduler.LRScheduler
Recipe = dict[str, Any]
"""A run's configuration and the sizes of its corpora, as JSON."""

_UNREADABLE = (
    OSError, SafetensorError, RuntimeError, ValueError, KeyError, TypeError, AttributeError,
)  # fmt: skip

_OLD = ".old"
_WEIGHTS = "learner.safetensors"


def recipe_of(config: Section, counts: Sequence[int], out: Path) -> Recipe:
    """Return the recipe of a run, which a checkpoint must match to be resumed.

    Corpora are in it by the names of their files, and the base of a later stage by its place in
    the run's folder, so that both may be moved before a run is resumed.

    Args:
        config: The run.
        counts: Items of each file.
        out: The run's folder.
    """
    recipe = config.model_dump(
        mode="json", exclude={"calibration_pool"}
    )  # used after the last step
    for corpus in recipe["data"]:
        corpus |= {key: Path(corpus[key]).name for key in ("path", "leave_out") if corpus[key]}
    if Path(base := recipe.get("base", "")).is_relative_to(out):
        recipe["base"] = str(Path(base).relative_to(out))
    return recipe | {"items": list(counts)}


def load_learnable(base: str, device: str | None) -> SentenceTransformer:
    """Load an encoder for training; `save_encoder` writes it.

    Dropout is off: it is slow on a CPU, and the batches regularise enough.

    Raises:
        ModelError: It cannot be loaded.
    """
    model = load_sentence_transformer(base, device)
    if model.device.type == "cpu":
        # The fused kernel's backward pass is twice as slow as plain matrix products there.
        transformer_of(model).set_attn_implementation("eager")
    return model


def save_model(
    model: SentenceTransformer, heads: RoleHeads | None, folder: Path, config: EncoderConfig
) -> None:
    """Write a model as a sentence-transformers folder in float16, with its card and recipe."""
    card = {"aggregation": asdict(config.aggregation), "trained": config.model_dump(mode="json")}
    with replacing(folder) as fresh:
        save_encoder(model, fresh)
        if heads:
            heads.save(fresh)
        (fresh / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")


def save_encoder(model: SentenceTransformer, folder: Path) -> None:
    """Write a model that is being trained as a sentence-transformers folder in float16."""
    half = deepcopy(model).half()
    transformer_of(half).set_attn_implementation("sdpa")
    half.save_pretrained(str(folder), create_model_card=False)
    write_older_layout(folder, model)


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Give an empty folder to fill, which then replaces another.

    An interruption at any point leaves a complete folder; `recover` puts it back in place.
    """
    fresh, old = (folder.with_name(folder.name + end) for end in (".new", _OLD))
    recover(folder)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    yield fresh
    for weights in fresh.rglob("*.safetensors"):  # safetensors lets nobody else read them
        weights.chmod(fresh.stat().st_mode & 0o666)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def recover(folder: Path) -> None:
    """Restore a folder after an interruption of `replacing`."""
    old = folder.with_name(folder.name + _OLD)
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
    elif old.exists():
        old.rename(folder)


@dataclass(slots=True)
class State:
    """The state of a run: with it, a resumed run ends as an uninterrupted one."""

    learner: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: Schedule
    recipe: Recipe
    step: int = 0
    best: float = math.inf
    """Best score of the validations so far; lower is better."""


def save_checkpoint(folder: Path, state: State) -> None:
    """Write a run's state, without pickle."""
    moments = {
        f"{index}.{name}": value.contiguous()
        for index, moment in state.optimiser.state_dict()["state"].items()
        for name, value in moment.items()
    }
    rest = {
        "recipe": state.recipe,
        "step": state.step,
        "best": state.best,
        "schedule": state.schedule.state_dict(),
    }
    with replacing(folder) as fresh:
        save_weights(state.learner, str(fresh / _WEIGHTS))  # writes tied weights once
        save_file(moments, fresh / "moments.safetensors")
        (fresh / "state.json").write_text(json.dumps(rest), encoding="utf-8")


def load_checkpoint(folder: Path, state: State) -> None:
    """Put a checkpoint's state into a run; without a checkpoint the run stays as it is.

    Raises:
        TrainingError: The checkpoint cannot be read, or is of a run of another recipe.
    """
    recover(folder)
    if not folder.is_dir():
        return
    try:
        rest = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        saved = {k: v for k, v in renamed(rest["recipe"]).items() if k not in REMOVED}
        both = {**state.recipe, **saved}
        if different := [name for name in both if saved.get(name) != state.recipe.get(name)]:
            what = f"is of another run, which differs in {', '.join(different)}"
            instead = "choose another --out, or replace it by a run without --resume"
            raise TrainingError(f"{folder} {what}; {instead}")
        _restore(folder, rest, state)
    except _UNREADABLE as error:
        what = f"cannot be read ({type(error).__name__})"
        raise TrainingError(f"{folder} {what}; start anew without --resume") from error


def _restore(folder: Path, rest: Mapping[str, Any], state: State) -> None:
    load_model(state.learner, folder / _WEIGHTS)
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in load_file(folder / "moments.safetensors").items():
        index, _, name = key.partition(".")
        moments.setdefault(int(index), {})[name] = value
    state.step, state.best = rest["step"], rest["best"]
    state.schedule.load_state_dict(rest["schedule"])
    groups = state.optimiser.state_dict()["param_groups"]
    for group, rate in zip(groups, rest["schedule"]["_last_lr"], strict=True):
        group["lr"] = rate
    state.optimiser.load_state_dict({"state": moments, "param_groups": groups})


def drop_checkpoint(folder: Path) -> None:
    """Delete a checkpoint."""
    recover(folder)  # the remains of an interruption would come back later
    shutil.rmtree(folder, ignore_errors=True)


class Curves:
    """Losses and metrics by step, as CSV and, after each validation, as a picture."""

    def __init__(self, folder: Path, step: int) -> None:
        """Start a folder's curves; a resumed run keeps those up to its step."""
        folder.mkdir(parents=True, exist_ok=True)
        self._csv, self._png = folder / "curves.csv", folder / "curves.png"
        kept = []
        if step and self._csv.is_file():
            with self._csv.open(encoding="utf-8", newline="") as file:
                whole = (
                    line for line in file if line.endswith("\n")
                )  # a full disk may cut the last
                kept = [row for row in csv.DictReader(whole) if int(row["step"]) <= step]
        with self._csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ("step", "name", "value"))
            writer.writeheader()
            writer.writerows(kept)

    def add(
        self,
        step: int,
        learning_rate: float,
        losses: Mapping[str, float],
        metrics: Mapping[str, float] | None,
    ) -> None:
        """Append a step's rows (step, name, value); draw the picture if there are metrics."""
        rows = {"learning_rate": learning_rate}
        rows |= {f"loss/{name}": value for name, value in losses.items()}
        rows |= {f"validation/{name}": value for name, value in (metrics or {}).items()}
        with self._csv.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerows((step, name, f"{value:.6g}") for name, value in rows.items())
        if metrics is not None:
            draw_curves(self._csv, self._png)


def draw_curves(source: Path, target: Path) -> None:
    """Draw losses above, validation below, from a `curves.csv`."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra that only training needs

    series: dict[str, tuple[list[int], list[float]]] = {}
    with source.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            steps, values = series.setdefault(row["name"], ([], []))
            steps.append(int(row["step"]))
            values.append(float(row["value"]))
    parts = {part: _lines(series, f"{part}/") for part in ("loss", "validation")}
    inches = [figure_height(lines, 4) for lines in parts.values()]
    figure = Figure(figsize=(8, sum(inches)))
    both = figure.subplots(2, 1, sharex=True, height_ratios=inches)
    for axes, (part, lines) in zip(both, parts.items(), strict=True):
        draw_lines(axes, lines)
        axes.set(xlabel="step", ylabel=part)
    figure.savefig(target, dpi=120, bbox_inches="tight")


def _lines(series: Mapping[str, tuple[list[int], list[float]]], start: str) -> list[Line]:
    return [
        Line(name.removeprefix(start), *points)
        for name, points in series.items()
        if name.startswith(start)
    ]
