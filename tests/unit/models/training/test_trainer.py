import csv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from turnwise.models.errors import TrainingError
from turnwise.models.training import curves
from turnwise.models.training.config import RunConfig, Validation
from turnwise.models.training.curves import draw_curves
from turnwise.models.training.trainer import Metrics, StepReport, fit, warm_up_and_decay


class Line:
    """Learns to be twice its input; each batch is one number."""

    clip = 1.0

    def __init__(
        self,
        *,
        epochs: int = 2,
        learning_rate: float = 0.1,
        every: int | None = 2,
        ranks: Iterator[float] | None = None,
    ) -> None:
        torch.manual_seed(0)
        self.weights = nn.Linear(1, 1)
        self.config = LineConfig(epochs=epochs, validation=Validation(every=every))
        self.counts = [4]
        self._learning_rate = learning_rate
        self._ranks = ranks
        self.kept: list[Tensor] = []

    def optimiser(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.weights.parameters(), self._learning_rate)

    def rate(self, steps: int) -> Callable[[int], float]:
        return warm_up_and_decay(steps, 0.1)

    def batches(self, epoch: int) -> list[list[int]]:
        return [[n + epoch] for n in range(4)]

    def loss(self, batch: list[int], rng: np.random.Generator) -> tuple[dict[str, Tensor], int]:
        x = torch.tensor([batch], dtype=torch.float32) + float(rng.random())
        return {"squared": ((self.weights(x) - 2 * x) ** 2).mean()}, 1

    def validate(self) -> Metrics:
        return {"average_rank": next(self._ranks)} if self._ranks else {}

    def save(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.kept.append(self.weights.weight.detach().clone())


class LineConfig(RunConfig):
    data: tuple[()] = ()


def steps_of(train: Callable[..., Path]) -> list[int]:
    seen: list[StepReport] = []
    train(report=seen.append)
    return [progress.step for progress in seen]


def stop(progress: StepReport) -> None:
    if progress.step == 3:
        raise KeyboardInterrupt


def test_the_best_model_by_validation_is_kept(tmp_path: Path) -> None:
    learner = Line(ranks=iter([3.0, 2.0, 5.0, 4.0]))
    seen: list[StepReport] = []
    fit(learner, tmp_path, report=seen.append)
    assert [p.step for p in seen if p.validation] == [2, 4, 6, 8]
    assert len(learner.kept) == 2
    assert seen[-1].steps == 8
    assert seen[-1].seconds_left == 0


def test_a_short_run_is_validated_as_well(tmp_path: Path) -> None:
    seen: list[StepReport] = []
    fit(Line(epochs=5, every=None, ranks=iter([1.0] * 10)), tmp_path, report=seen.append)
    assert [p.step for p in seen if p.validation] == list(range(2, 21, 2))


def test_without_validation_the_last_model_is_kept(tmp_path: Path) -> None:
    learner = Line(every=3)
    fit(learner, tmp_path)
    assert torch.equal(learner.kept[-1], learner.weights.weight)


def test_curves_hold_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "draw_curves", draw_curves)
    fit(Line(every=8, ranks=iter([1.5])), tmp_path)
    with (tmp_path / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    steps = [int(row["step"]) for row in rows if row["name"] == "loss/squared"]
    assert steps == list(range(1, 9))
    assert [row["value"] for row in rows if row["name"] == "validation/average_rank"] == ["1.5"]
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_resumed_run_ends_where_an_unbroken_one_does(tmp_path: Path) -> None:
    unbroken = Line()
    broken = Line()
    fit(unbroken, tmp_path / "unbroken")
    with pytest.raises(KeyboardInterrupt):
        fit(Line(), tmp_path / "broken", report=stop)
    assert steps_of(partial(fit, broken, tmp_path / "broken", resume=True)) == [3, 4, 5, 6, 7, 8]
    assert torch.equal(broken.weights.weight, unbroken.weights.weight)
    curves = [(tmp_path / name / "curves.csv").read_text() for name in ("unbroken", "broken")]
    assert curves[0] == curves[1]


def test_a_resumed_run_keeps_the_best_model_of_before(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(Line(ranks=iter([2.0])), tmp_path, report=stop)
    resumed = Line(ranks=iter([5.0, 4.0, 3.0]))
    fit(resumed, tmp_path, resume=True)
    assert not resumed.kept


def test_a_checkpoint_of_other_data_is_not_resumed(tmp_path: Path) -> None:
    fit(Line(), tmp_path)
    more = Line()
    more.counts = [5]
    said = "another run, which differs in the sizes of its corpora;"
    with pytest.raises(TrainingError, match=said):
        fit(more, tmp_path, resume=True)


def test_a_diverged_run_stops(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="diverged"):
        fit(Line(learning_rate=1e30, epochs=5), tmp_path)


def test_a_run_stops_where_a_loss_without_a_gradient_is_not_finite(tmp_path: Path) -> None:
    class Empty(Line):
        def loss(self, batch: list[int], rng: np.random.Generator) -> tuple[dict[str, Tensor], int]:
            nothing = self.weights(torch.empty(0, 1)).mean()
            return super().loss(batch, rng)[0] | {"nothing": nothing}, 1

    with pytest.raises(TrainingError, match="diverged"):
        fit(Empty(), tmp_path)


def test_the_learning_rate_warms_up_and_decays() -> None:
    factor = warm_up_and_decay(100, 0.1)
    values = [factor(step) for step in range(100)]
    assert max(values) == values[9] == pytest.approx(1)
    assert values[:10] == sorted(values[:10])
    assert values[9:] == sorted(values[9:], reverse=True)
    assert 0 < values[-1] < 0.02
