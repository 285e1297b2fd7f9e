"""What all learners have in common."""

from pathlib import Path

import pytest
import torch

from tests.unit.models.training.conftest import Trained, take_steps, train_once
from turnwise.models.errors import DataError
from turnwise.models.training.config import Config, Validation
from turnwise.models.training.run import make_learner
from turnwise.models.training.trainer import StepReport, fit


@pytest.fixture(params=["heads", "pairwise", "ioi", "cross_encoder", "multilingual"])
def config(request: pytest.FixtureRequest) -> Config:
    config: Config = request.getfixturevalue(f"{request.param}_config")
    return config


def test_steps_lower_the_loss(config: Config) -> None:
    losses = take_steps(make_learner(config, Path), 20)
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.train
def test_a_resumed_run_ends_where_an_unbroken_one_does(config: Config, tmp_path: Path) -> None:
    """It is stopped in step 3, after a checkpoint in step 2."""

    def stop(progress: StepReport) -> None:
        if progress.step == 3:
            raise KeyboardInterrupt

    unbroken = train_once(config, tmp_path / "unbroken")
    with pytest.raises(KeyboardInterrupt):
        fit(make_learner(config, Path), tmp_path / "broken", report=stop)
    seen: list[StepReport] = []
    fit(make_learner(config, Path), tmp_path / "broken", report=seen.append, resume=True)
    assert [progress.step for progress in seen] == list(range(3, len(unbroken.seen) + 1))
    assert len(seen) > 1
    for name, value in Trained(tmp_path / "broken", seen).weights.items():
        assert torch.allclose(value, unbroken.weights[name], atol=1e-6), name


def test_an_epoch_has_the_same_batches_in_every_run(config: Config) -> None:
    learner = make_learner(config, Path)
    assert learner.batches(0) == learner.batches(0)
    assert learner.batches(0) != learner.batches(1)


def test_no_learner_trains_on_what_validates(config: Config) -> None:
    same = Validation(paths=(config.data[0].path,))
    with pytest.raises(DataError, match="no dialogue to train on: all are left out"):
        make_learner(config.model_copy(update={"validation": same}), Path)
