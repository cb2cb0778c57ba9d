import numpy as np
import pytest

from gpnn import Prediction, metrics
from gpnn.calibration import calibrate, variance_factor
from gpnn.errors import InvalidInputError


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
