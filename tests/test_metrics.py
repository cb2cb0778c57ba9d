import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from gpnn import Prediction, metrics
from gpnn.errors import InvalidInputError


@pytest.fixture
def case(rng):
    prediction = Prediction(rng.normal(size=500), rng.uniform(0.5, 2, size=500))
    return prediction.mean + prediction.std * rng.normal(size=500), prediction


def test_nll_is_the_normal_density(case):
    y, p = case
    assert metrics.nll(y, p) == pytest.approx(-stats.norm.logpdf(y, p.mean, p.std).mean())


def test_mse_rmse_calibration(case):
    y, p = case
    assert metrics.mse(y, p) == pytest.approx(np.mean((y - p.mean) ** 2))
    assert metrics.rmse(y, p) == pytest.approx(metrics.mse(y, p) ** 0.5)
    assert metrics.calibration(y, p) == pytest.approx(np.mean(((y - p.mean) / p.std) ** 2))


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_coverage_counts_what_lies_inside(case, level):
    y, p = case
    low, high = stats.norm.interval(level, p.mean, p.std)
    assert metrics.coverage(y, p, level) == np.mean((low <= y) & (y <= high))


def test_pit_of_the_right_law_is_uniform(case):
    assert stats.kstest(metrics.pit(*case), "uniform").pvalue > 0.01


def test_crps_is_its_integral():
    p = Prediction(np.array([0.3]), np.array([0.49]))
    y = 1.2

    def squared_difference(t):
        return (stats.norm.cdf(t, 0.3, 0.7) - (t >= y)) ** 2

    integral = quad(squared_difference, -8, y)[0] + quad(squared_difference, y, 8)[0]
    assert metrics.crps(np.array([y]), p) == pytest.approx(integral, rel=1e-6)


def test_shapes_must_agree(case):
    y, p = case
    with pytest.raises(InvalidInputError, match="shape"):
        metrics.nll(y[:10], p)
    with pytest.raises(InvalidInputError, match="1 of them NaN"):
        metrics.coverage(np.append(y[1:], np.nan), p)
    with pytest.raises(InvalidInputError, match="level"):
        metrics.coverage(y, p, 90)
