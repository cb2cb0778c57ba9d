"""Several candidates that answer together: weights, what they are worth, and one law of many."""

import numpy as np
import pytest

from gpnn import GPnnRegressor, Hyperparameters
from gpnn.common.kernels import get_kernel
from gpnn.common.types import Prediction
from gpnn.engines import make_engine
from gpnn.stages.ensemble import Companion, Ensemble, Together, Weighing, contenders, fit_weighing, judged
from gpnn.stages.selection import Candidate
from gpnn.stages.whitening import Whitener


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
    assert trial.worth_it
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


def test_contenders_are_the_leaders_of_kinds_in_their_metric(rng):
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    whiteners = {"diagonal": Whitener.fit(X, y, "diagonal"), "full": Whitener.fit(X, y, "full")}
    lengthscales, x_map = np.array([2.0, 0.5]), np.array([[1.0, 0.3], [0.0, 1.0]])
    params = Hyperparameters(lengthscales, 1.0, 0.1)
    tried = [
        Candidate("diagonal", "rbf", True, params, x_map=x_map),
        Candidate("diagonal", "rbf", True, params.scaled(2.0), x_map=x_map),
        Candidate("diagonal", "rbf", True, params),
        Candidate("full", "matern32", True, params),
    ]
    found = contenders(tried, whiteners, 3)
    assert [one.told["mapped"] for one in found] == [True, False, False]
    assert [one.kernel for one in found] == ["rbf", "rbf", "matern32"]
    assert found[0].params == Hyperparameters(1.0, 1.0, 0.1)
    np.testing.assert_allclose(
        found[0].whitener.transform(X), whiteners["diagonal"].transform(X) @ x_map / lengthscales, atol=1e-6
    )


def test_together_is_every_member_by_itself_weighed(rng):
    """Against two models that were fitted alone."""
    X = rng.uniform(-2, 2, size=(600, 2))
    y, X_star = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=600), rng.uniform(-2, 2, size=(40, 2))
    given = {"rbf": Hyperparameters(0.8, 1.0, 0.01), "exponential": Hyperparameters(2.0, 1.0, 0.02)}
    alone = [
        GPnnRegressor(kernel=kernel, params=params, whitening=whitening, n_neighbors=m, random_state=0).fit(X, y)
        for (kernel, params), whitening, m in zip(given.items(), ("diagonal", "full"), (30, 50), strict=True)
    ]
    first, second = alone
    other = Companion(
        "exponential", second.whitener_, second.params_, 50, second.alpha_, second.floor_, second._scale, False,
        second.index_, second._y,
    )  # fmt: skip
    weighing = Weighing(np.array([0.7, 0.3]), 1.1, 0.001)
    near = Together(**vars(first._near()), ensemble=Ensemble([other], weighing))
    assert near.kernel == get_kernel("rbf")
    law, claimed, _ = near.law(make_engine("cpu").hold(first.index_, first._y), X_star)
    laws = [model._near().law(make_engine("cpu").hold(model.index_, model._y), X_star) for model in alone]
    np.testing.assert_array_equal(claimed, laws[0][1])  # the support is the winner's
    expected = weighing([laws[0][0], laws[1][0]])
    np.testing.assert_allclose(law.mean, expected.mean)
    np.testing.assert_allclose(law.variance, expected.variance)


class _Beyond:
    """Stands in for models for gaps: the support ends at a claimed variance."""

    def __init__(self, edge):
        self.edge, self.mixture = edge, self

    def ramp(self, claimed):
        return np.clip((claimed - self.edge) / self.edge, 0, 1)


def test_beyond_the_support_the_winner_is_alone(rng):
    X = rng.uniform(-2, 2, size=(500, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=500)
    params, X_star = Hyperparameters(0.5, 1.0, 0.01), rng.uniform(-4, 4, size=(60, 2))
    model = GPnnRegressor(kernel="rbf", params=params, whitening="diagonal", n_neighbors=20, random_state=0).fit(X, y)
    engine = make_engine("cpu").hold(model.index_, model._y)
    other = Companion(
        "rbf", model.whitener_, model.params_.scaled(4.0), 20, 1.0, 0.0, None, False, model.index_, -model._y
    )
    members = Ensemble([other], Weighing(np.array([0.5, 0.5])))
    alone, claimed, _ = model._near().law(engine, X_star)
    far = _Beyond(np.quantile(claimed, 0.1))
    law, _, _ = Together(**vars(model._near()), ensemble=members, far=far).law(engine, X_star)
    beyond, inside = claimed > 2 * far.edge, claimed < far.edge
    assert beyond.any()
    assert inside.any()
    np.testing.assert_array_equal(law.mean[beyond], alone.mean[beyond])
    np.testing.assert_array_equal(law.variance[beyond], alone.variance[beyond])
    np.testing.assert_allclose(law.mean[inside], 0, atol=1e-6)
    everywhere, _, _ = Together(**vars(model._near()), ensemble=members).law(engine, X_star)
    np.testing.assert_allclose(everywhere.mean, 0, atol=1e-6)
