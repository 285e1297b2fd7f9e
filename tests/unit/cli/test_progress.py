import pytest

from turnwise.models.training.trainer import StepReport
from turnwise.service.cli.progress import SystemProgress, TrainingProgress, UploadProgress


def test_a_metric_stands_there_as_its_file_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress() as show:
        show(StepReport(1, 2, {"ccl": 0.5}, 60.0, 10.0, {"[new] chats/average_rank": 2.0}))
    assert "step 1: [new] chats/average_rank 2.00" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("step", "seconds", "rest"),
    [
        (1, 90.0, "2 min left"),
        (8, 20.0, "the last steps, then a validation"),
        (9, 0.0, "all steps done, measuring and saving the model"),
    ],
)
def test_what_follows_the_last_steps_is_named(
    capsys: pytest.CaptureFixture[str], step: int, seconds: float, rest: str
) -> None:
    with TrainingProgress() as show:
        show(StepReport(step, 9, {"ccl": 0.5}, seconds, 10.0, None))
    assert f"  {rest}\n" in capsys.readouterr().out


def test_a_file_gets_a_line_before_the_steps_and_one_a_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with TrainingProgress() as show:
        before = "reading the corpora and preparing the model, which may take minutes\n"
        assert capsys.readouterr().out == before
        for step in (1, 2, 3):
            show(StepReport(step, 9, {"ccl": 0.5}, 120.0, 10.0, None))
    assert capsys.readouterr().out == "step 1 of 9: loss 0.500  10 texts/s  2 min left\n"


def test_a_pipe_gets_no_bar_and_no_empty_line(capsys: pytest.CaptureFixture[str]) -> None:
    with UploadProgress(), UploadProgress() as uploaded, SystemProgress() as done:
        uploaded(1, 2)
        done("bm25", 1, 2)
    assert not capsys.readouterr().out
