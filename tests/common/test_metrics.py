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


# --- Student-t --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[2.5, 6.0, 400.0])
def student(rng, request):
    nu = request.param
    p = Prediction(rng.normal(size=500), rng.uniform(0.5, 2, size=500), degrees_of_freedom=nu)
    law = stats.t(nu, p.mean, p.std * np.sqrt((nu - 2) / nu))
    np.testing.assert_allclose(law.var(), p.variance)
    return law.rvs(random_state=1), p, law


def test_student_t_density_intervals_and_distribution(student):
    y, p, law = student
    assert metrics.log_score(y, p) == pytest.approx(-law.logpdf(y).mean())
    np.testing.assert_allclose(metrics.pit(y, p), law.cdf(y))
    low, high = law.interval(0.8)
    assert metrics.coverage(y, p, 0.8) == np.mean((low <= y) & (y <= high))


@pytest.mark.parametrize("y", [-2.0, 0.3, 1.2])
@pytest.mark.parametrize("nu", [2.5, 6.0, 400.0])
def test_student_t_crps_is_its_integral(y, nu):
    p = Prediction(np.array([0.3]), np.array([0.49]), degrees_of_freedom=nu)
    law = stats.t(nu, 0.3, 0.7 * np.sqrt((nu - 2) / nu))
    below = quad(lambda t: law.cdf(t) ** 2, -np.inf, y)[0]
    above = quad(lambda t: law.sf(t) ** 2, y, np.inf)[0]
    assert metrics.crps(np.array([y]), p) == pytest.approx(below + above, rel=1e-6)


def test_student_t_of_many_degrees_is_gaussian(case):
    y, p = case
    near = Prediction(p.mean, p.variance, degrees_of_freedom=1e7)
    assert metrics.log_score(y, p) == metrics.nll(y, p)
    for score in (metrics.log_score, metrics.crps, metrics.coverage):
        assert score(y, near) == pytest.approx(score(y, p), rel=1e-5)


def test_the_gaussian_nll_refuses_student_t(student):
    y, p, _ = student
    with pytest.raises(InvalidInputError, match=r"Student-t.*log_score"):
        metrics.nll(y, p)
    assert p.affine(1.0, 2.0).degrees_of_freedom == p.degrees_of_freedom


def test_shapes_must_agree(case):
    y, p = case
    with pytest.raises(InvalidInputError, match="shape"):
        metrics.nll(y[:10], p)
    with pytest.raises(InvalidInputError, match="1 of them NaN"):
        metrics.coverage(np.append(y[1:], np.nan), p)
    with pytest.raises(InvalidInputError, match="level"):
        metrics.coverage(y, p, 90)
