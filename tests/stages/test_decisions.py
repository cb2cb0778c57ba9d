"""Thresholds, regions and suggestions against plain linear algebra and draws."""

import numpy as np
import pytest
from scipy.stats import norm

from gpnn import GPnnRegressor, Hyperparameters
from gpnn.errors import InvalidInputError
from gpnn.stages.decisions import expected_improvement
from gpnn.stages.shapes import Shape


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(3)
    X = rng.random((400, 2))
    y = np.sin(5 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=400)
    params = Hyperparameters(0.6, 1.0, 0.2)
    return GPnnRegressor(
        kernel="matern32", params=params, whitening="none", calibration_size=0, n_neighbors=60, n_jobs=1
    ).fit(X, y)


@pytest.fixture(scope="module")
def candidates():
    return np.random.default_rng(4).random((60, 2))


@pytest.mark.parametrize("shape", [Shape(), Shape("student_t", 4.0), None], ids=["gaussian", "student_t", "empirical"])
def test_cdf_is_the_inverse_of_quantile(shape):
    shape = shape or Shape("empirical", residuals=np.sort(np.random.default_rng(0).normal(size=300)))
    q = np.array([1e-4, 0.01, 0.3, 0.5, 0.9, 0.999])
    np.testing.assert_allclose(shape.cdf(shape.quantile(q)), q, atol=2e-4)


def test_exceedance_is_the_share_of_draws(model, candidates):
    for noise in (True, False):
        probability = model.predict_exceedance(candidates, 0.8, noise=noise)
        share = (model.sample_y(candidates, 4000, noise=noise) > 0.8).mean(axis=1)
        assert np.abs(probability - share).max() < 0.04
    own = model.predict(candidates)
    np.testing.assert_allclose(model.predict_exceedance(candidates, own), 0.5, atol=1e-6)


def test_an_excursion_region_holds_as_one(model):
    more = np.random.default_rng(5).random((400, 2))
    region = model.excursion_region(more, 0.5, level=0.8, n_samples=2000, random_state=0)
    draws = model.sample_y(more, 2000, random_state=1, noise=False)
    assert 0 < region.inside.sum() < (region.probability > 0.8).sum()
    assert (draws[region.inside] > 0.5).all(axis=0).mean() == pytest.approx(0.8, abs=0.06)
    assert (region.joint_probability <= region.probability).all()


def test_variance_is_reduced_greedily(model, candidates):
    law = model.predict_distribution(candidates, joint=True)
    covariance, noise = law.covariance(noise=False), law.variance - law.latent_variance
    expected: list[int] = []
    left = covariance.copy()
    for _ in range(5):
        variances = np.diag(left).copy()
        variances[expected] = -1
        at = int(np.argmax(variances))
        expected.append(at)
        left = left - np.outer(left[:, at], left[at]) / (left[at, at] + noise[at])
    assert model.suggest(candidates, 5).tolist() == expected
    alone = model.suggest(candidates, 5, batch=False)
    np.testing.assert_array_equal(alone, np.argsort(-np.diag(covariance))[:5])


def test_the_first_suggestion_is_the_best_by_itself(model, candidates):
    law = model.predict_distribution(candidates, joint=True)
    std = np.sqrt(law.latent_variance)
    assert model.suggest(candidates, 1, "ucb", kappa=1.5)[0] == np.argmax(law.mean + 1.5 * std)
    assert model.suggest(candidates, 1, "ucb", kappa=1.5, maximize=False)[0] == np.argmin(law.mean - 1.5 * std)
    assert model.suggest(candidates, 1, "ei", best=1.0)[0] == np.argmax(expected_improvement(law.mean - 1.0, std))
    assert len(set(model.suggest(candidates, 10, "ei").tolist())) == 10


def test_expected_improvement_is_an_expectation():
    draws = np.maximum(0.3 + 0.7 * norm.ppf((np.arange(100_000) + 0.5) / 100_000), 0)
    assert expected_improvement(np.array([0.3]), np.array([0.7]))[0] == pytest.approx(draws.mean(), rel=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, Z: model.suggest(Z, 3, "best"), "variance, ei, ucb"),
        (lambda model, Z: model.suggest(Z, 100), "60 candidates"),
        (lambda model, Z: model.suggest(Z, 0), "at least 1"),
        (lambda model, Z: model.predict_exceedance(Z, [0.0, 1.0]), "one for each of 60 rows"),
        (lambda model, Z: model.excursion_region(Z, 0.0, level=1.5), "strictly between 0 and 1"),
    ],
)
def test_what_cannot_be_done_is_said(model, candidates, call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(model, candidates)
