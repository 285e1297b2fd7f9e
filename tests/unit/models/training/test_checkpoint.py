import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling
from torch import nn

from tests.unit.models.conftest import Folder
from turnwise.models.encoder.torch import UtteranceEncoder
from turnwise.models.errors import TrainingError
from turnwise.models.roles import EncoderKind, Role
from turnwise.models.training.checkpoint import (
    State,
    load_checkpoint,
    recipe_of,
    save_checkpoint,
    save_encoder,
)
from turnwise.models.training.config import EncoderConfig, IoIConfig, PairCorpus, PairwiseConfig


@pytest.mark.parametrize("normalised", [False, True])
def test_an_older_sentence_transformers_can_read_what_is_saved(
    tmp_path: Path, tiny_encoder_folder: Folder, normalised: bool
) -> None:
    model = SentenceTransformer(str(tiny_encoder_folder(EncoderKind.TRIPLE)), device="cpu")
    if normalised:
        model.append(Normalize())
    save_encoder(UtteranceEncoder(model), tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    names = ["Transformer", "Pooling", "Normalize"][: len(model)]
    assert [module["type"] for module in modules] == [
        f"sentence_transformers.models.{name}" for name in names
    ]
    pooling = json.loads((tmp_path / modules[1]["path"] / "config.json").read_text())
    assert pooling["word_embedding_dimension"] == 32
    assert [mode for mode, chosen in pooling.items() if chosen is True] == [
        "pooling_mode_mean_tokens",
        "include_prompt",
    ]
    saved = UtteranceEncoder(tmp_path, device="cpu")
    model.half().float()  # the weights are saved in float16
    assert saved.fingerprint == UtteranceEncoder(model, device="cpu").fingerprint


def test_a_model_without_an_older_form_is_saved_as_it_is(
    tmp_path: Path, tiny_encoder_folder: Folder
) -> None:
    torch.manual_seed(0)
    plain = SentenceTransformer(str(tiny_encoder_folder(EncoderKind.TRIPLE)), device="cpu")
    for name, more in (
        ("dense", [Pooling(32), Dense(32, 16)]),
        ("last", [Pooling(32, pooling_mode="lasttoken")]),
    ):
        model = SentenceTransformer(modules=[plain[0], *more], device="cpu")
        save_encoder(UtteranceEncoder(model), tmp_path / name)
        assert "sentence_transformers.models." not in (tmp_path / name / "modules.json").read_text()
        model.half().float()  # the weights are saved in float16
        wanted = UtteranceEncoder(model).encode(["Hello"], Role.AFTER)
        got = UtteranceEncoder(tmp_path / name, device="cpu").encode(["Hello"], Role.AFTER)
        assert got == pytest.approx(wanted, abs=1e-5)


def state_of(*, learner: nn.Module | None = None, **values: object) -> State:
    required = {"kind": "triple", "base": "b", "objectives": {"ccl": 1}, "data": [{"path": "a"}]}
    config = EncoderConfig.model_validate(required | values)
    learner = learner or nn.Linear(2, 2)
    optimiser = torch.optim.AdamW(learner.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda _: 1.0)
    recipe = recipe_of(config, [3], Path("out"))
    return State(learner, optimiser, schedule, recipe, EncoderConfig)


def test_only_a_run_of_its_recipe_resumes_a_checkpoint(tmp_path: Path) -> None:
    saved = state_of(seed=1)
    saved.step = 7
    save_checkpoint(tmp_path / "checkpoint", saved)
    again = state_of(seed=1, validation={"every": 50})  # no step depends on this
    load_checkpoint(tmp_path / "checkpoint", again)
    assert again.step == 7
    assert torch.equal(again.learner.weight, saved.learner.weight)
    for other, named in (
        ({"seed": 1, "data": [{"path": "a"}, {"path": "b"}]}, "data"),
        ({"seed": 2, "data": [{"path": "b"}]}, "seed, data"),
        ({"seed": 1, "epochs": 2}, "epochs"),
        ({"seed": 1, "objectives": {"ccl": 1, "order": 1}}, "objectives.order"),
    ):
        said = re.escape(f"{tmp_path / 'checkpoint'} is of another run, which differs in {named};")
        with pytest.raises(TrainingError, match=f"^{said}"):
            load_checkpoint(tmp_path / "checkpoint", state_of(**other))


def test_a_run_of_another_kind_is_told_so(tmp_path: Path) -> None:
    """Its recipe has fields that this kind does not know."""
    save_checkpoint(
        tmp_path / "checkpoint", replace(state_of(), recipe={"kind": "ioi", "batch": 2})
    )
    with pytest.raises(TrainingError, match="is of another run, which differs in kind;"):
        load_checkpoint(tmp_path / "checkpoint", state_of())


def test_a_checkpoint_with_the_fields_of_before_is_resumed(tmp_path: Path) -> None:
    values = {"batch_windows": 8, "data": [{"path": "a", "windows": 3}]}
    saved = state_of(**values)
    saved.step = 7
    old = saved.recipe
    old["batch_views"] = old.pop("batch_windows")
    old["gradient_cache"] = False
    old["data"][0]["views"] = old["data"][0].pop("windows")
    del old["eight_bits"], old["objectives"]["distil"], old["data"][0]["skip"]
    save_checkpoint(tmp_path / "checkpoint", saved)
    again = state_of(**values)
    load_checkpoint(tmp_path / "checkpoint", again)
    assert again.step == 7


def test_where_files_lie_is_no_part_of_a_recipe() -> None:
    named = PairCorpus(path="here/a.jsonl", leave_out="/there/leaks.json", pairs=2)
    config = IoIConfig(kind="ioi", data=(named, PairCorpus(path="b.csv", skip=3)))
    recipe = recipe_of(config, [3, 1], Path("out"))
    assert recipe["data"] == [
        {"path": "a.jsonl", "leave_out": "leaks.json", "skip": 0, "pairs": 2},
        {"path": "b.csv", "leave_out": None, "skip": 3, "pairs": None},
    ]
    assert recipe["items"] == [3, 1]
    assert recipe["batch"] == 50
    pairwise = PairwiseConfig(kind="pairwise", base="out/base/model", data=(named,))
    assert recipe_of(pairwise, [1], Path("out"))["base"] == "base/model"
    assert recipe_of(pairwise, [1], Path("other"))["base"] == "out/base/model"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("state.json", None),
        ("state.json", "{"),
        ("state.json", json.dumps({"recipe": {"seed": 1}, "step": 1})),
        ("learner.safetensors", "cut off"),
        ("moments.safetensors", ""),
    ],
)
def test_a_broken_checkpoint_is_an_error_that_names_it(
    tmp_path: Path, file: str, text: str | None
) -> None:
    folder = tmp_path / "checkpoint"
    save_checkpoint(folder, state_of(seed=1))
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    with pytest.raises(TrainingError, match=re.escape(f"{folder} cannot be read")):
        load_checkpoint(folder, state_of(seed=1))
