"""What all learners have in common."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.unit.models.training.conftest import take_steps
from turnwise.models.errors import DataError
from turnwise.models.training.config import Config, Validation
from turnwise.models.training.run import make_learner
from turnwise.models.training.trainer import StepReport, fit

LEARNER = Path("checkpoint") / "learner.safetensors"


@pytest.fixture(params=["heads", "pairwise", "ioi", "cross_encoder", "multilingual"])
def config(request: pytest.FixtureRequest) -> Config:
    config: Config = request.getfixturevalue(f"{request.param}_config")
    return config


def test_steps_lower_the_loss(config: Config) -> None:
    losses = take_steps(make_learner(config, Path), 20)
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.train
def test_a_resumed_run_ends_where_an_unbroken_one_does(config: Config, tmp_path: Path) -> None:
    """Of a run that stops in step 3, the checkpoint of step 2 is left."""
    unbroken = tmp_path / "unbroken"
    broken = tmp_path / "broken"

    def keep_checkpoint(progress: StepReport) -> None:
        if progress.step == 3:
            shutil.copytree(unbroken, broken)

    fit(make_learner(config, Path), unbroken, report=keep_checkpoint)
    seen: list[StepReport] = []
    fit(make_learner(config, Path), broken, report=seen.append, resume=True)
    assert [progress.step for progress in seen] == list(range(3, seen[-1].steps + 1))
    assert len(seen) > 1
    wanted = load_file(unbroken / LEARNER)
    for name, value in load_file(broken / LEARNER).items():
        assert torch.allclose(value, wanted[name], atol=1e-6), name


def test_an_epoch_has_the_same_batches_in_every_run(config: Config) -> None:
    learner = make_learner(config, Path)
    assert learner.batches(0) == learner.batches(0)
    assert learner.batches(0) != learner.batches(1)


def test_no_learner_trains_on_what_validates(config: Config) -> None:
    same = Validation(paths=(config.data[0].path,))
    with pytest.raises(DataError, match="no dialogue to train on: all are left out"):
        make_learner(config.model_copy(update={"validation": same}), Path)
