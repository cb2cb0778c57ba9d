"""Joint laws against an exact Gaussian process, closed-form sums and a Brownian bridge; marginals against `predict`."""

import numpy as np
import pytest
from scipy.special import ndtr

from gpnn import GPnnRegressor, Hyperparameters
from gpnn.engines.cpu.joint import CPUErrors
from gpnn.errors import InvalidInputError
from gpnn.kernels import KERNELS, squared_distances
from gpnn.stages import joint

LENGTHSCALES = {"exponential": 0.5, "matern32": 0.3, "matern52": 0.3, "rbf": 0.2}


def process(kernel, n_neighbors, lengthscale, noise, X, y, **settings):
    """A regressor with these parameters and nothing else: no whitening of X, no calibration, no mean."""
    scale = float(np.var(y))
    return GPnnRegressor(
        kernel=kernel, params=Hyperparameters(lengthscale, 1 / scale, noise / scale), whitening="none", mean="zero",
        calibration_size=0, n_neighbors=n_neighbors, suspects="keep", n_jobs=1, **settings
    ).fit(X, y)  # fmt: skip


def exact(kernel, lengthscale, noise, X, y, Z):
    """Mean and covariance of y* given all rows."""

    def k(A, B):
        return KERNELS[kernel].correlation(squared_distances(A, B) / lengthscale**2)

    weights = np.linalg.solve(k(X, X) + noise * np.eye(len(X)), k(X, Z))
    return weights.T @ y, k(Z, Z) - k(Z, X) @ weights + noise * np.eye(len(Z))


def divergence(mean, covariance, other_mean, other):
    """Kullback–Leibler, from the first Gaussian to the other, in nats."""
    difference = mean - other_mean
    terms = np.trace(np.linalg.solve(other, covariance)) + difference @ np.linalg.solve(other, difference) - len(mean)
    return 0.5 * (terms + np.linalg.slogdet(other)[1] - np.linalg.slogdet(covariance)[1])


def off(found, true) -> float:
    return np.linalg.norm(found - true) / np.linalg.norm(true)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("whole", [0, 5000], ids=["chain", "whole"])
def test_the_law_is_that_of_the_exact_process(kernel, whole, monkeypatch):
    monkeypatch.setattr(CPUErrors, "_whole", whole)
    rng = np.random.default_rng(0)
    X, Z = rng.random((900, 2)).astype(np.float32), rng.random((100, 2)).astype(np.float32)
    noise, lengthscale = 0.01, LENGTHSCALES[kernel]
    y = np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=900)
    mean, covariance = exact(kernel, lengthscale, noise, X.astype(float), y, Z.astype(float))
    model = process(kernel, 400, lengthscale, noise, X, y)
    found_mean, found = model.predict(Z, return_cov=True)
    assert off(found, covariance) < 0.01
    assert divergence(mean, covariance, found_mean, found) < 0.05
    np.testing.assert_allclose(np.diag(found), model.predict(Z, return_std=True)[1] ** 2, rtol=1e-12)
    f_alone = model.predict_distribution(Z, joint=True).covariance(noise=False)
    np.testing.assert_allclose(found - f_alone, noise * np.eye(100), rtol=1e-4, atol=1e-12)


def test_a_brownian_bridge():
    """Between two rows, an exponential kernel that decays slowly is Brownian motion tied down at both ends."""
    rate = 1e-3  # so that 2·rate is the variance of a step of length 1, when σ_f² is 1
    X, t = np.array([[0.0], [1.0]]), np.linspace(0.05, 0.95, 19)
    model = process("exponential", 2, 1 / rate, 1e-9, X, np.array([-1.0, 1.0]))
    _, covariance = model.predict(t[:, None], return_cov=True)
    bridge = 2 * rate * (np.minimum.outer(t, t) - np.outer(t, t))
    np.testing.assert_allclose(covariance, bridge, atol=2e-3 * bridge.max())
    total = model.predict_sum(t[:, None], noise=False)
    assert total.std == pytest.approx(np.sqrt(bridge.sum()), rel=2e-3)
    assert total.naive_std == pytest.approx(np.sqrt(np.trace(bridge)), rel=2e-3)


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(3)
    X = rng.random((400, 2))
    y = np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=400)
    return process("matern32", 60, 0.4, 0.01, X, y), rng.random((50, 2))


def test_sums_are_what_the_covariance_says(small):
    model, Z = small
    mean, covariance = model.predict(Z, return_cov=True)
    weights, by = np.linspace(-1, 3, 50), np.repeat(["b", "a"], 25)
    total = model.predict_sum(Z, weights)
    assert total.mean == pytest.approx(weights @ mean)
    assert total.std == pytest.approx(np.sqrt(weights @ covariance @ weights), rel=1e-6)
    assert total.naive_std == pytest.approx(np.sqrt(weights**2 @ np.diag(covariance)))
    parts = model.predict_sum(Z, by=by, average=True)
    assert parts.groups.tolist() == ["a", "b"]
    np.testing.assert_allclose(parts.mean, [mean[25:].mean(), mean[:25].mean()])
    blocks = covariance[25:, 25:], covariance[:25, :25]
    np.testing.assert_allclose(parts.std, [np.sqrt(block.mean()) for block in blocks], rtol=1e-6)
    f_alone = model.predict_sum(Z, noise=False)
    assert f_alone.std**2 + 50 * 0.01 == pytest.approx(model.predict_sum(Z).std ** 2, rel=1e-4)


def test_draws_are_of_that_law(small):
    model, Z = small
    mean, covariance = model.predict(Z, return_cov=True)
    draws = model.sample_y(Z, 5000, random_state=0)
    assert draws.shape == (50, 5000)
    assert np.abs((draws.mean(axis=1) - mean) / np.sqrt(np.diag(covariance) / 5000)).max() < 4.5
    assert off(np.cov(draws), covariance) < 0.12
    np.testing.assert_array_equal(model.sample_y(Z, 3, random_state=5), model.sample_y(Z, 3, random_state=5))
    assert not np.array_equal(model.sample_y(Z, 3, random_state=5), model.sample_y(Z, 3, random_state=6))


def test_the_same_place_has_the_same_f_and_noises_of_its_own(small):
    model, Z = small
    twice = np.concatenate([Z[:5], Z[:5]])
    f = model.sample_y(twice, 20, noise=False)
    np.testing.assert_allclose(f[:5], f[5:], atol=1e-5)
    y = model.sample_y(twice, 20)
    assert np.abs(y[:5] - y[5:]).min() > 1e-5


def test_marginals_are_those_of_predict_with_all_that_calibration_did(wavy, wavy_model):
    X = wavy[0][2000:2400]
    law, plain = wavy_model.predict_distribution(X, joint=True), wavy_model.predict_distribution(X)
    np.testing.assert_array_equal(law.mean, plain.mean)
    np.testing.assert_array_equal(law.variance, plain.variance)
    np.testing.assert_allclose(np.diag(law.covariance()), plain.variance, rtol=1e-12)
    draws = law.sample(1000, random_state=0)
    quantiles = wavy_model.predict_quantiles(X, [0.05, 0.5, 0.95])
    shares = (draws[:, :, None] < quantiles[:, None]).mean(axis=(0, 1))
    np.testing.assert_allclose(shares, [0.05, 0.5, 0.95], atol=0.01)
    assert np.mean(draws.var(axis=1) / plain.variance) == pytest.approx(1, abs=0.05)


def test_where_a_chain_is_inexact_variances_are_corrected(small, monkeypatch):
    model, Z = small
    law = model.predict_distribution(Z, joint=True)
    weights = np.linspace(1, 2, 50)

    class TooWide:
        def __init__(self, errors):
            self.errors = errors

        def draws(self, n, rng, out):
            self.errors.draws(n, rng, out)
            out *= np.sqrt(1.3)

        def variances(self, *args):
            return 1.3 * self.errors.variances(*args)

    for exact_up_to in (1000, 10):
        monkeypatch.setattr(joint, "_EXACT", exact_up_to)
        wide = joint.JointPrediction(
            law.marginals, law.latent_variance, law.shape, TooWide(law.errors), law.error_variance
        )
        assert wide.sum(weights).std == pytest.approx(law.sum(weights).std, rel=0.02)
        ratio = wide.sample(3000, 0, noise=False).var(axis=1) / law.latent_variance
        assert ratio.mean() == pytest.approx(1, abs=0.03)


def test_no_rows_and_one_row(small):
    model, Z = small
    assert model.sample_y(Z[:0], 3).shape == (0, 3)
    assert model.predict_sum(Z[:0]).mean == 0
    mean, covariance = model.predict(Z[:1], return_cov=True)
    assert mean.shape == (1,)
    assert covariance.shape == (1, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, Z: model.predict_sum(Z, weights=[1.0, 2.0]), "one for each row"),
        (lambda model, Z: model.predict_sum(Z, weights=np.full(50, np.nan)), "finite numbers"),
        (lambda model, Z: model.predict_sum(Z, by=["a"]), "one for each row"),
        (lambda model, Z: model.predict_sum(Z, np.zeros(50), average=True), "sum to zero"),
        (lambda model, Z: model.sample_y(Z, 10**12), "GiB of memory are free"),
        (lambda model, Z: model.sample_y(Z, 0), "n_samples = 0"),
        (lambda model, Z: model.predict(np.resize(Z, (6000, 2)), return_cov=True), "sample_y"),
    ],
)
def test_what_cannot_be_done_is_said(small, call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(*small)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_noise_that_is_known_of_each_row(engine):
    """Against the exact process with the same diagonal, from all rows."""
    rng = np.random.default_rng(3)
    X, Z = rng.random((150, 2)), rng.random((30, 2))
    v, v_star = rng.choice([0.001, 0.1], 150), rng.choice([0.0, 0.5], 30)
    y = np.sin(5 * X[:, 0]) + np.sqrt(v) * rng.normal(size=150)
    scale = float(np.var(y))
    model = GPnnRegressor(
        kernel="matern32", params=Hyperparameters(0.4, 1 / scale, 0.01 / scale), whitening="none", mean="zero",
        n_neighbors=150, calibration_size=0, engine=engine, n_jobs=1, suspects="keep",
    ).fit(X, y, noise_variance=v)  # fmt: skip
    k = lambda A, B: KERNELS["matern32"].correlation(squared_distances(A / 0.4, B / 0.4))  # noqa: E731
    weights = np.linalg.solve(k(X, X) + np.diag(v + 0.01), k(X, Z))
    latent = k(Z, Z) - k(Z, X) @ weights
    mean, covariance = model.predict(Z, return_cov=True, noise_variance=v_star)
    np.testing.assert_allclose(mean, weights.T @ y, atol=1e-5)
    np.testing.assert_allclose(covariance, latent + np.diag(0.01 + v_star), atol=2e-5)
    joint = model.predict_distribution(Z, v_star, joint=True)
    np.testing.assert_allclose(joint.covariance(noise=False), latent, atol=2e-5)
    total = joint.sum()
    assert total.std == pytest.approx(np.sqrt(covariance.sum()), rel=1e-3)
    draws = joint.sample(4000, random_state=0, noise=False)
    assert np.linalg.norm(np.cov(draws) - latent) < 0.1 * np.linalg.norm(latent)
    above = model.predict_exceedance(Z, 0.5, noise=False)
    np.testing.assert_allclose(above, ndtr((mean - 0.5) / np.sqrt(np.diag(latent))), atol=1e-3)
