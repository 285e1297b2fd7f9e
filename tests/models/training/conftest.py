import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from turnwise.models.training.loop import Progress


@pytest.fixture
def check_resuming(tmp_path: Path) -> Callable[[Callable[..., object]], None]:
    """Check that a run that is stopped in step 3 and taken up ends where an unbroken one does.

    It must write a checkpoint in step 2, and go on past step 3.
    """

    def stop(progress: Progress) -> None:
        if progress.step == 3:
            raise KeyboardInterrupt

    def check(train: Callable[..., object]) -> None:
        train(tmp_path / "unbroken")
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "broken", report=stop)
        steps: list[int] = []
        train(
            tmp_path / "broken",
            report=lambda progress: steps.append(progress.step),
            resume=True,
        )
        assert steps[0] == 3
        assert len(steps) > 1
        unbroken, broken = (
            load_file(tmp_path / name / "checkpoint" / "learner.safetensors")
            for name in ("unbroken", "broken")
        )
        for name, value in broken.items():
            assert torch.allclose(value, unbroken[name], atol=1e-6), name

    return check


@pytest.fixture
def matters(tmp_path: Path) -> Path:
    """A file of dialogues in which each response repeats a word of what it answers."""
    path = tmp_path / "matters.jsonl"
    lines = [
        {
            "id": f"d{n}",
            "utterances": [
                {"speaker": "AB"[t % 2], "text": f"{chr(97 + n)} {'zyx'[t % 3]}"}
                for t in range(2 + n % 4)
            ],
        }
        for n in range(16)
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path
