"""The folders that a run writes: the best model, and a checkpoint to resume from."""

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, load_model, save_file
from safetensors.torch import save_model as save_weights
from sentence_transformers import SentenceTransformer
from torch import nn

from turnwise.models.card import CARD
from turnwise.models.encoder import eight_bits
from turnwise.models.encoder.torch import UtteranceEncoder, transformer_of
from turnwise.models.errors import TrainingError
from turnwise.models.files import recover_folder, replace_folder
from turnwise.models.model_files import UNREADABLE
from turnwise.models.training.config import REMOVED, EncoderConfig, Section, rename_fields

Recipe = dict[str, Any]
"""A run's configuration and the sizes of its corpora, as JSON."""

_MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
_OLDER = "sentence_transformers.models"

_WEIGHTS = "learner.safetensors"


def recipe_of(config: Section, counts: Sequence[int], out: Path) -> Recipe:
    """Return the recipe of a run, which a checkpoint must match to be resumed.

    Corpora are in it by the names of their files, and the base of a later stage by its path in
    the run's folder, so that both may be moved before a run is resumed.

    Args:
        config: The run.
        counts: Items of each file.
        out: The run's folder.
    """
    # The calibration follows the last step, so that its pool does not change the run.
    recipe = config.model_dump(mode="json", exclude={"calibration_pool", "answers"})
    for corpus in (*recipe["data"], *recipe.get("parallel", ())):
        named = [key for key in ("path", "leave_out") if corpus.get(key)]
        corpus.update({key: Path(corpus[key]).name for key in named})
    validation = recipe["validation"]
    del validation["every"]  # no step depends on it
    validation["paths"] = [Path(path).name for path in validation["paths"]]
    base = Path(recipe.get("base", ""))
    if base.is_relative_to(out):
        recipe["base"] = str(base.relative_to(out))
    return recipe | {"items": list(counts)}


def save_model(encoder: UtteranceEncoder, folder: Path, config: EncoderConfig) -> None:
    """Write an encoder as a sentence-transformers folder in float16, with its card and recipe."""
    card = {"aggregation": asdict(config.aggregation), "trained": config.model_dump(mode="json")}
    with replace_folder(folder) as fresh:
        save_encoder(encoder, fresh)
        if encoder.heads:
            encoder.heads.save(fresh)
        if config.eight_bits:
            eight_bits.save(transformer_of(encoder.model), fresh)
        write_json(fresh / CARD, card)


def save_encoder(encoder: UtteranceEncoder, folder: Path) -> None:
    """Write an encoder that is being trained as a sentence-transformers folder in float16.

    The folder has what rewrites its texts, and neither heads nor a card.
    """
    half = deepcopy(encoder.model).half()
    transformer_of(half).set_attn_implementation("sdpa")
    half.save_pretrained(str(folder), create_model_card=False)
    _write_older_layout(folder, encoder.model)
    encoder.rewriting.save(folder)


def _write_older_layout(folder: Path, model: SentenceTransformer) -> None:
    """Rewrite the configuration files of a model in the form that every reader knows.

    sentence-transformers 6 writes names of modules and settings that its older versions do not
    know, and embedding servers such as Infinity are built on those versions. Version 6 still reads
    the older form. Only a transformer with pooling and, perhaps, normalisation has that form; the
    files of any other model stay as they are.
    """
    modules = _read_json(folder / "modules.json")
    named = [module["type"].rpartition(".")[2] for module in modules]
    if named not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        return
    pooling = folder / modules[1]["path"] / "config.json"
    config = _read_json(pooling)
    if (chosen := _MODES.get(str(config["pooling_mode"]))) is None:
        return
    for module, name in zip(modules, named, strict=True):
        module["type"] = f"{_OLDER}.{name}"
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": model.max_seq_length})
    size = {"word_embedding_dimension": config["embedding_dimension"]}
    modes = (*_MODES.values(), "mean_sqrt_len_tokens")
    flags = {f"pooling_mode_{mode}": mode == chosen for mode in modes}
    write_json(pooling, size | flags | {"include_prompt": config["include_prompt"]})


def _read_json(file: Path) -> Any:  # noqa: ANN401 - whatever the JSON holds
    return json.loads(file.read_text(encoding="utf-8"))


def write_json(file: Path, value: object) -> None:
    """Write a value as JSON, for people to read."""
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


@dataclass(slots=True)
class State:
    """The state of a run: with it, a resumed run ends as an uninterrupted one."""

    learner: nn.Module
    optimiser: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    recipe: Recipe
    schema: type[Section]
    """The configuration of the recipe: fields that an older checkpoint lacks have its defaults."""
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
    with replace_folder(folder) as fresh:
        save_weights(state.learner, str(fresh / _WEIGHTS))  # writes tied weights once
        save_file(moments, fresh / "moments.safetensors")
        (fresh / "state.json").write_text(json.dumps(rest), encoding="utf-8")


def load_checkpoint(folder: Path, state: State) -> None:
    """Put a checkpoint's state into a run; without a checkpoint the run stays as it is.

    Raises:
        TrainingError: The checkpoint cannot be read, or is of a run of another recipe.
    """
    recover_folder(folder)
    if not folder.is_dir():
        return
    try:
        rest = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        known = {k: v for k, v in rename_fields(rest["recipe"]).items() if k not in REMOVED}
        kind = state.recipe.get("kind")
        if known.get("kind", kind) != kind:  # its recipe has other fields
            raise _refuse_other_run(folder, ["kind"])
        items = known.pop("items")
        saved = recipe_of(state.schema.model_validate(known), items, folder.parent)
        if different := [*_find_differences(saved, state.recipe)]:
            raise _refuse_other_run(folder, different)
        _restore(folder, rest, state)
    except UNREADABLE as error:
        what = f"cannot be read ({type(error).__name__})"
        raise TrainingError(f"{folder} {what}; start again without --resume") from error


def _find_differences(one: Recipe, other: Recipe) -> Iterator[str]:
    """Yield the fields in which two recipes, or tables of them, differ."""
    for name in {**other, **one}:
        value = one.get(name)
        expected = other.get(name)
        if isinstance(value, dict) and isinstance(expected, dict):
            yield from (f"{name}.{inner}" for inner in _find_differences(value, expected))
        elif value != expected:
            yield "the sizes of its corpora" if name == "items" else name


def _refuse_other_run(folder: Path, different: list[str]) -> TrainingError:
    what = f"is of another run, which differs in {', '.join(different)}"
    instead = "choose another --out, or replace it by a run without --resume"
    return TrainingError(f"{folder} {what}; {instead}")


def _restore(folder: Path, rest: Mapping[str, Any], state: State) -> None:
    load_model(state.learner, folder / _WEIGHTS)
    moments: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in load_file(folder / "moments.safetensors").items():
        index, _, name = key.partition(".")
        moments.setdefault(int(index), {})[name] = value
    state.step = rest["step"]
    state.best = rest["best"]
    state.schedule.load_state_dict(rest["schedule"])
    groups = state.optimiser.state_dict()["param_groups"]
    for group, rate in zip(groups, rest["schedule"]["_last_lr"], strict=True):
        group["lr"] = rate
    state.optimiser.load_state_dict({"state": moments, "param_groups": groups})


def drop_checkpoint(folder: Path) -> None:
    """Delete a checkpoint."""
    recover_folder(folder)  # the remains of an interruption would come back later
    shutil.rmtree(folder, ignore_errors=True)
