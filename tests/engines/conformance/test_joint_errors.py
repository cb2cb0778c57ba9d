"""Every engine gives the covariances of the errors that predictions from nearest rows make, as linear algebra does."""

import numpy as np
import pytest

from gpnn import Broad, Hyperparameters
from gpnn.engines.cpu import CPU
from gpnn.engines.cpu.joint import CPUErrors
from gpnn.kernels import KERNELS, get_kernel_or_sum
from gpnn.stages.whitening import Whitener

M = 12
PARAMS = Hyperparameters(0.4, 2.0, 0.02, Broad(0.3, np.array([0.3, 1.0])))  # the last for sums of kernels only


def as_they_are(d: int) -> Whitener:
    return Whitener(np.zeros(d), np.ones(d), 0.0, 1.0)


def build(engine, X):
    return engine.build(engine.whiten(as_they_are(X.shape[1]), X), np.zeros(len(X)), "exact", M, np.arange(60), seed=0)


def true_covariance(X, Z, kernel, params=PARAMS, m=M):
    """Cov(f* − Wy) for W from each query's own m nearest rows."""
    X, Z = X.astype(float), Z.astype(float)

    def k(A, B):
        return params.kernel_variance * kernel.correlations(A, B, params)

    W = np.zeros((len(Z), len(X)))
    for q, z in enumerate(Z):
        N = np.argsort(((X - z) ** 2).sum(axis=1))[:m]
        W[q, N] = np.linalg.solve(k(X[N], X[N]) + params.noise_variance * np.eye(m), k(X[N], z[None])[:, 0])
    known = k(Z, X) @ W.T
    return k(Z, Z) - known - known.T + W @ (k(X, X) + params.noise_variance * np.eye(len(X))) @ W.T


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.random((300, 2)).astype(np.float32)
    X[40:43] = X[40]  # one place, three values
    Z = rng.random((40, 2)).astype(np.float32)
    Z[7], Z[8] = Z[3], X[5]  # the same query twice, and one at a row
    return X, Z


@pytest.fixture(params=[*KERNELS, "matern32+exponential"])
def kernel(request):
    return get_kernel_or_sum(request.param)


def off(found, true) -> float:
    return np.linalg.norm(found - true) / np.linalg.norm(true)


def test_covariances_are_those_of_the_predictions_that_are_made(engine, data, kernel):
    X, Z = data
    engine = build(engine, X)
    errors = engine.errors(engine.whiten(as_they_are(2), Z), M, kernel, PARAMS)
    assert off(errors.covariances(np.arange(len(Z))), true_covariance(X, Z, kernel)) < 1e-3


def test_along_a_chain_they_are_nearly_the_same(data, kernel, monkeypatch):
    monkeypatch.setattr(CPUErrors, "_whole", 0)
    X, Z = data
    engine = build(CPU(1), X)
    errors = engine.errors(engine.whiten(as_they_are(2), Z), M, kernel, PARAMS)
    covariance = errors.covariances(np.arange(len(Z)))
    assert off(covariance, true_covariance(X, Z, kernel)) < 0.02
    sums, groups = np.linspace(-1, 2, len(Z)), np.arange(len(Z)) % 3
    expected = [(sums * (groups == g)) @ covariance @ (sums * (groups == g)) for g in range(3)]
    np.testing.assert_allclose(errors.variances(sums, groups, 3), expected, rtol=1e-6)


@pytest.mark.parametrize("whole", [0, 5000])
def test_draws_have_these_covariances_whatever_the_threads(data, monkeypatch, whole):
    monkeypatch.setattr(CPUErrors, "_whole", whole)
    X, Z = data
    drawn = []
    for n_jobs in (1, 2):
        engine = build(CPU(n_jobs), X)
        errors = engine.errors(engine.whiten(as_they_are(2), Z), M, KERNELS["matern32"], PARAMS)
        drawn.append(np.empty((len(Z), 4000)))
        errors.draws(4000, np.random.default_rng(1), drawn[-1])
    np.testing.assert_array_equal(*drawn)
    np.testing.assert_allclose(drawn[0][3], drawn[0][7], atol=1e-5)
    assert off(np.cov(drawn[0]), true_covariance(X, Z, KERNELS["matern32"])) < 0.12


def test_a_chain_in_five_dimensions_and_more_points_than_links():
    rng = np.random.default_rng(0)
    X, Z = rng.random((2500, 5)).astype(np.float32), rng.random((20, 5)).astype(np.float32)
    params, kernel = Hyperparameters(1.0, 1.0, 0.1), KERNELS["exponential"]
    engine = CPU(1)
    engine = engine.build(engine.whiten(as_they_are(5), X), np.zeros(2500), "exact", 200, np.arange(60), seed=0)
    CPUErrors._whole, before = 0, CPUErrors._whole
    try:
        errors = engine.errors(Z, 200, kernel, params)
    finally:
        CPUErrors._whole = before
    true = true_covariance(X, Z, kernel, params, 200)
    assert off(errors.covariances(np.arange(20)), true) < 0.03
