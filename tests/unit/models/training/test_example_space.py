from pathlib import Path
from shutil import copytree

import numpy as np

from tests.unit.models.conftest import Folder
from tests.unit.models.training.conftest import write_dialogues
from turnwise.models.encoder.example_space import load_example_space
from turnwise.models.roles import EncoderKind
from turnwise.models.training.config import EncoderConfig
from turnwise.models.training.example_space import POWER, add_example_space, fit_example_space


def test_a_space_shortens_the_axes_along_which_utterances_vary_most() -> None:
    rng = np.random.default_rng(0)
    deviations = np.array([4.0, 2.0, 1.0, 0.5])
    turned, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    said = (rng.normal(size=(5000, 4)) * deviations @ turned + 3).astype(np.float32)
    space = fit_example_space(said)
    moved = (said - space.mean) @ space.linear
    np.testing.assert_allclose(moved.mean(0), 0, atol=1e-3)
    variances = np.linalg.eigvalsh(np.cov(moved.T))[::-1]
    wanted = deviations ** (2 - 4 * POWER)  # whitened completely, all would be the same
    np.testing.assert_allclose(variances / variances[0], wanted / wanted[0], rtol=0.1)


def test_a_language_without_spaces_has_a_space_of_examples(
    tmp_path: Path, tiny_encoder_folder: Folder, encoder_config: EncoderConfig
) -> None:
    said = [[f"\u5305\u88f9{n}\u5728\u54ea\u91cc", f"\u5728\u8def\u4e0a{n}"] for n in range(5)]
    path = str(write_dialogues(tmp_path / "d.jsonl", said))
    corpus = encoder_config.data[0].model_copy(update={"path": path})
    folder = Path(copytree(tiny_encoder_folder(EncoderKind.TRIPLE), tmp_path / "model"))
    add_example_space(folder, encoder_config.model_copy(update={"data": (corpus,)}), Path)
    space = load_example_space(folder)
    assert space
    assert np.isfinite(space.linear).all()
