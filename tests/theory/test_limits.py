import numpy as np
import pytest

from gpnn import GPnnRegressor, Hyperparameters
from gpnn.datasets import oakley_ohagan
from gpnn.theory import limits


def test_theorem_1():
    limit = limits(0.1, 0.2, 400)
    assert limit.mse == pytest.approx(0.1 * (1 + 1 / 400))
    assert limit.calibration == pytest.approx(0.5)
    assert limit.nll == pytest.approx(0.5 * (np.log(0.2 * (1 + 1 / 400)) + 0.5 + np.log(2 * np.pi)))


def test_constant_signal_is_at_the_limit_whatever_the_parameters():
    """As n → ∞ neighbours coincide; the same happens for any n when the function hardly varies between them."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(4000, 2))
    noise = rng.laplace(scale=np.sqrt(0.5), size=4000)
    model = GPnnRegressor(
        kernel="rbf", params=Hyperparameters(50.0, 3.0, 0.4), n_neighbors=100, calibration_size=0, random_state=0
    ).fit(X[:2000], noise[:2000])
    scores = model.evaluate(X[2000:], noise[2000:])
    limit = limits(1.0, 0.4, 100)
    assert scores["rmse"] ** 2 == pytest.approx(limit.mse, rel=0.1)
    assert scores["calibration"] == pytest.approx(limit.calibration, rel=0.1)


def test_oakley_ohagan_comes_in_blocks_that_do_not_depend_on_n():
    X, y = oakley_ohagan(70_000, 6.0, random_state=3)
    X2, y2 = oakley_ohagan(500, 6.0, random_state=3)
    np.testing.assert_array_equal(X[:500], X2)
    np.testing.assert_array_equal(y[:500], y2)
    assert X.dtype == np.float32
    assert y.var() == pytest.approx(66, rel=0.05)
