import numpy as np

from turnwise.models.training.example_space import POWER, fit_example_space


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
