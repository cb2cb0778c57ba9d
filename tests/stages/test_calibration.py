import numpy as np
import pytest
from scipy.stats import chi2

from gpnn import Prediction, metrics
from gpnn.calibration import calibrate, variance_factor
from gpnn.errors import InvalidInputError
from gpnn.stages.calibration import factor_for_a_new_part, fit_calibration


@pytest.fixture
def overconfident(rng):
    p = Prediction(rng.normal(size=300), rng.uniform(0.1, 1, size=300))
    return p.mean + 3 * p.std * rng.standard_t(5, size=300), p


def test_lemma_3(overconfident):
    """(a) calibration on C is 1, (b) α minimises NLL there, (c) means stay."""
    y, p = overconfident
    alpha = variance_factor(y, p)
    calibrated = calibrate(p, alpha)
    assert metrics.calibration(y, calibrated) == pytest.approx(1)
    best = metrics.nll(y, calibrated)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2):
        assert metrics.nll(y, calibrate(p, factor * alpha)) > best
    assert calibrated.mean is p.mean


def test_refuses_what_cannot_calibrate():
    with pytest.raises(InvalidInputError, match="at least one"):
        variance_factor(np.zeros(0), Prediction(np.zeros(0), np.zeros(0)))
    with pytest.raises(InvalidInputError, match="exactly"):
        variance_factor(np.zeros(3), Prediction(np.zeros(3), np.ones(3)))


def test_a_new_part_asks_for_more_the_fewer_parts_are_known(rng):
    """Of Gaussian errors, the share that must be covered is 0.9 (n + ½)/n."""
    z_squared = rng.chisquare(1, 400_000)
    for n in (5, 20, 1000):
        expected = chi2.ppf(0.9 * (n + 0.5) / n, 1) / chi2.ppf(0.9, 1)
        assert factor_for_a_new_part(z_squared, n) == pytest.approx(expected, rel=0.02)
    assert 1 < factor_for_a_new_part(z_squared, 1) < 10


def test_intervals_of_parts_that_differ_hold_in_a_new_one(rng):
    """Pooled judges are too sure: the hardest of n + 1 parts is the new one as often as any other."""
    before, after = [], []
    for _ in range(400):
        scale = np.exp(1.5 * rng.normal(size=11))
        z_squared = scale[:, None] * rng.chisquare(1, (11, 100))
        judges, new = z_squared[:10].ravel(), z_squared[10]
        end = np.quantile(judges, 0.9)
        before.append(np.mean(new <= end))
        after.append(np.mean(new <= factor_for_a_new_part(judges, 10) * end))
    assert np.mean(before) < 0.89
    assert abs(np.mean(after) - 0.9) < abs(np.mean(before) - 0.9)


def test_sure_rows_are_believed_once_many_judges_say_so(rng):
    """Of few judges, some may have been lucky: a floor. Of many, hardly any: the law is the true one."""

    def drawn(n):
        variance = np.where(rng.random(n) < 0.5, 0.01, 1.0)
        law = Prediction(np.zeros(n), variance)
        return rng.normal(size=n) * law.std, law, rng.chisquare(1, size=(n, 8))

    few, many = (fit_calibration(*drawn(n)) for n in (2000, 40_000))
    y, law, innovations = drawn(20_000)
    truth = metrics.nll(y, law)
    assert few.floor > 0.001
    assert metrics.nll(y, few(law, innovations)) > truth + 0.005
    assert many.floor == 0
    assert many.alpha == pytest.approx(1, abs=0.03)
    assert metrics.nll(y, many(law, innovations)) == pytest.approx(truth, abs=0.001)
