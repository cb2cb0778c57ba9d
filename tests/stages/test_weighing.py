"""Several laws as one: weights, and what they are worth."""

import numpy as np
import pytest

from gpnn.common.types import Prediction
from gpnn.stages.weighing import Weighing, fit_weighing, judged


@pytest.fixture
def guesses(rng):
    """Of y: two whose errors have nothing to do with each other, with variances of 0.04 and 0.16, and one far off."""
    truth = rng.normal(size=4000)
    y = truth + 0.01 * rng.normal(size=4000)
    laws = [Prediction(truth + sd * rng.normal(size=4000), np.full(4000, sd**2)) for sd in (0.2, 0.4, 3.0)]
    return y, laws


def test_one_law_of_several_is_that_of_their_mixture(rng):
    mean, variance = rng.normal(size=(3, 5)), rng.uniform(0.1, 1, size=(3, 5))
    weights = np.array([0.5, 0.3, 0.2])
    law = Weighing(weights)([Prediction(*of) for of in zip(mean, variance, strict=True)])
    np.testing.assert_allclose(law.mean, weights @ mean)
    np.testing.assert_allclose(law.variance, weights @ (variance + mean**2) - (weights @ mean) ** 2)
    wider = Weighing(weights, alpha=2.0, floor=0.1)([Prediction(*of) for of in zip(mean, variance, strict=True)])
    np.testing.assert_allclose(wider.variance, 2 * law.variance + 0.1)


def test_noise_that_is_known_is_no_part_of_the_mixture(rng):
    known = rng.uniform(0, 1, size=5)
    laws = [Prediction(np.full(5, value), np.full(5, 0.5)).with_noise(known) for value in (0.0, 1.0)]
    law = Weighing(np.array([0.5, 0.5]), alpha=3.0)(laws)
    np.testing.assert_allclose(law.own, 3 * (0.5 + 0.25))
    np.testing.assert_allclose(law.variance, law.own + known)


def test_weights_are_those_of_least_error_where_errors_are_independent(guesses):
    y, laws = guesses
    found = fit_weighing(y, laws, local=False)
    assert found.weights.sum() == pytest.approx(1)
    assert found.weights[2] == 0  # not worth asking
    np.testing.assert_allclose(found.weights[:2], [0.8, 0.2], atol=0.06)  # inversely as the variances: 5 to 1 or so
    law = found(laws)
    assert np.mean((y - law.mean) ** 2 / law.variance) == pytest.approx(1, abs=1e-6)  # α is closed-form
    assert np.mean((y - law.mean) ** 2) < 0.9 * np.mean((y - laws[0].mean) ** 2)


def test_the_winner_stays_though_it_has_no_weight(guesses):
    y, laws = guesses
    found = fit_weighing(y, [laws[2], laws[0]], local=False)
    assert found.weights[0] < 0.05
    assert found.weights.shape == (2,)


def test_a_gain_is_told_from_noise(guesses, rng):
    y, laws = guesses
    trial = judged(y, laws[:2], False, rng)
    assert trial.exceeds(1.0, 0.1)
    assert not trial.exceeds(1.0, 100.0)
    assert trial.gain > 10 * trial.error
    assert np.std(trial.residuals) == pytest.approx(1, abs=0.02)
    same = judged(y, [laws[0], laws[0]], False, rng)
    assert abs(same.gain) < 0.01
    assert not judged(y, [laws[0], laws[2]], False, rng).gain > 0.005


def test_the_gain_is_that_of_nll_and_log_rmse(guesses, rng):
    y, laws = guesses
    calibrated = [Prediction(law.mean, np.full(4000, np.mean((y - law.mean) ** 2))) for law in laws[:2]]
    trial = judged(y, calibrated, False, rng)
    together = fit_weighing(y, calibrated, False)(calibrated)

    def score(law):
        error = y - law.mean
        nll = np.mean(0.5 * np.log(2 * np.pi * law.variance) + error**2 / (2 * law.variance))
        return nll + np.log(np.sqrt(np.mean(error**2)))

    assert trial.gain == pytest.approx(score(calibrated[0]) - score(together), abs=0.01)
