"""Scales of a target: maps and back, densities and moments by quadrature of another kind, limits."""

import numpy as np
import pytest
from scipy import integrate, stats

from gpnn.common import metrics
from gpnn.common.scales import ScaleColumns, TargetScale
from gpnn.common.types import Prediction
from gpnn.errors import InvalidInputError

SCALES = [
    TargetScale("log"),
    TargetScale("log", centre=-1.0, low=0.0),
    TargetScale("sqrt", centre=-0.375, low=0.0),
    TargetScale("yeo-johnson", centre=2.0, unit=3.0, power=0.4),
    TargetScale("yeo-johnson", centre=2.0, unit=3.0, power=0.0),
    TargetScale("yeo-johnson", centre=2.0, unit=3.0, power=2.0),
]


@pytest.mark.parametrize("scale", SCALES)
def test_there_and_back(scale):
    y = np.linspace(0.5, 40, 50)
    np.testing.assert_allclose(scale.back(scale(y)), y, rtol=1e-12)
    step = 1e-6
    slope = (scale(y + step) - scale(y - step)) / (2 * step)
    np.testing.assert_allclose(scale.log_slope(y), np.log(slope), atol=1e-7)


def test_yeo_and_johnson_as_scipy_has_it():
    u = np.linspace(-4, 4, 30)
    for power in (0.0, 0.3, 1.0, 1.7, 2.0):
        np.testing.assert_allclose(TargetScale("yeo-johnson", power=power)(u), stats.yeojohnson(u, power), rtol=1e-12)


@pytest.mark.parametrize("scale", SCALES)
def test_density_mean_and_variance_are_of_one_law(scale):
    inner = Prediction(scale(np.array([4.0, 9.0])), np.array([0.04, 0.01]))
    law = Prediction.through(scale, inner)
    for k in range(2):

        def density(y, k=k):
            return np.exp(-metrics.log_score([y], law[k : k + 1]))

        low, high = scale.back(inner.mean[k] + 9 * inner.std[k] * np.array([-1, 1]))
        total, mean, square = (
            integrate.quad(lambda y, p=p: y**p * density(y), low, high, limit=200)[0] for p in range(3)
        )
        assert total == pytest.approx(1, abs=1e-6)
        assert law.mean[k] == pytest.approx(mean, rel=1e-6)
        assert law.variance[k] == pytest.approx(square - mean**2, rel=1e-4)


def test_lognormal_moments_and_crps():
    law = Prediction.through(TargetScale("log"), Prediction(np.full(3, 0.3), np.full(3, 0.25)))
    exact = stats.lognorm(0.5, scale=np.exp(0.3))
    np.testing.assert_allclose(law.mean, exact.mean(), rtol=1e-9)
    np.testing.assert_allclose(law.variance, exact.var(), rtol=1e-7)
    y = np.array([0.5, 1.5, 4.0])
    draws = exact.rvs((200_000, 2), random_state=0)
    by_draws = (
        np.mean([np.mean(np.abs(draws[:, 0] - one)) for one in y]) - np.mean(np.abs(draws[:, 0] - draws[:, 1])) / 2
    )
    assert metrics.crps(y, law) == pytest.approx(by_draws, rel=0.01)
    np.testing.assert_allclose(metrics.pit(y, law), exact.cdf(y))
    assert metrics.log_score(y, law) == pytest.approx(-exact.logpdf(y).mean())
    assert metrics.coverage(y, law, 0.9) == np.mean((exact.ppf(0.05) <= y) & (y <= exact.ppf(0.95)))


def test_scores_in_other_units_differ_by_the_logarithm_of_the_unit():
    y = np.array([0.5, 1.5, 4.0])
    law = Prediction.through(TargetScale("log", low=0.0), Prediction(np.full(3, 0.3), np.full(3, 0.25)))
    moved = law.affine(-7.0, 0.1)
    assert metrics.log_score(0.1 * y - 7, moved) == pytest.approx(metrics.log_score(y, law) + np.log(0.1))
    assert metrics.crps(0.1 * y - 7, moved) == pytest.approx(0.1 * metrics.crps(y, law))
    with pytest.raises(InvalidInputError, match="positive numbers"):
        law.affine(0.0, -1.0)


def test_a_tail_that_no_row_has_reached_does_not_decide_the_mean():
    scale = TargetScale("log", reach=(-2.0, 3.0))
    mean, variance = scale.moments(np.array([0.0]), np.array([6.0]))
    assert mean[0] < np.exp(3)
    assert np.isfinite(variance[0])


def test_limits_hold_for_laws_that_are_not_mapped_too():
    law = Prediction.through(TargetScale(low=0.0, high=1.0), Prediction(np.array([0.02, 0.5]), np.full(2, 0.01)))
    np.testing.assert_array_equal(law.mean, [0.02, 0.5])
    np.testing.assert_array_equal(law.at(np.array([[-2.0, 0.0, 9.0]])), [[0.0, 0.02, 0.92], [0.3, 0.5, 1.0]])


def test_all_of_a_law_at_a_limit_has_a_deviation_all_the_same():
    _, variance = TargetScale("sqrt", low=0.0, spread=1.0).moments(np.array([-9.0]), np.array([0.1]))
    assert variance[0] > 0


def test_several_targets():
    scales = ScaleColumns((TargetScale("log"), TargetScale()))
    y = np.array([[1.0, -2.0], [np.e, 5.0]])
    np.testing.assert_allclose(scales(y), [[0.0, -2.0], [1.0, 5.0]])
    np.testing.assert_allclose(scales.back(scales(y)), y)
    np.testing.assert_allclose(scales.log_slope(y), [[0.0, 0.0], [-1.0, 0.0]])


def test_what_is_no_scale():
    with pytest.raises(InvalidInputError, match="no scale"):
        TargetScale("cube")
    with pytest.raises(InvalidInputError, match="no scale"):
        TargetScale("yeo-johnson", power=2.5)


def test_a_law_far_beyond_all_of_y_stays_one_law():
    """Its mean lies within its own interval, and it is as wide as it was."""
    scale = TargetScale("log", reach=(0.0, 5.0), spread=10.0)
    law = Prediction.through(scale, Prediction(np.array([-9.0, 2.0, 15.0]), np.full(3, 0.49)))
    lower, upper = scale.back(law.inner.at(np.array([[-1.645, 1.645]]))).T
    assert (lower < law.mean).all()
    assert (law.mean < upper).all()
    assert law.std[2] > 0.1 * law.mean[2]
    np.testing.assert_array_equal(law.inner.mean, [0.0, 2.0, 5.0])
