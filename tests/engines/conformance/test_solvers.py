"""Every solver gives the float64 reference's answers: means within 1e-3 sd, variances within 1e-3 of themselves."""

from dataclasses import replace

import numpy as np
import pytest

from gpnn import Broad, Hyperparameters
from gpnn.engines import reference
from gpnn.engines.local import make_solver
from gpnn.kernels import KERNELS, get_kernel_or_sum
from gpnn.stages.selection import SUMS

REGIMES = {
    "noisy": Hyperparameters(1.0, 1.0, 0.3),
    "typical": Hyperparameters(0.7, 2.0, 0.01),
    "smooth": Hyperparameters(11.0, 95.0, 0.0027),  # House Electric's, RBF
    "steep": Hyperparameters(0.7, 20.0, 1e-4),  # σ_f²/σ_ξ² = 2·10⁵
    "noise at its floor": Hyperparameters(500.0, 30.0, 1e-6),
    "nothing near": Hyperparameters(1e-3, 1.0, 0.1),
    "ard": Hyperparameters(np.array([0.3, 1.0, 30.0]), 1.5, 0.02),
}


def neighbourhoods(rng, m, d=3, queries=12):
    """Neighbours in a shrinking ball, nearest first, some repeated, with y smooth plus noise."""
    radius = np.geomspace(0.02, 1, queries)[:, None, None]
    centre = rng.normal(size=(queries, 1, d))
    N = centre + radius * rng.normal(size=(queries, m, d)) / np.sqrt(d)
    if m > 4:
        N[::2, m // 2] = N[::2, m // 2 - 1]
    order = np.argsort(np.linalg.norm(N - centre, axis=2), axis=1)
    N = np.take_along_axis(N, order[..., None], axis=1)
    y = np.sin(2 * N[..., 0]) + N[..., 1] + 0.05 * rng.normal(size=(queries, m)) + 3
    return centre[:, 0].astype(np.float32), N.astype(np.float32), y


def assert_same(solution, standard):
    assert np.isfinite(solution.mean).all()
    assert (solution.variance > 0).all()
    error = np.abs(solution.mean - standard.mean) / np.sqrt(standard.variance)
    assert error.max() < 1e-3
    np.testing.assert_allclose(solution.variance, standard.variance, rtol=1e-3)
    roughness, true = (each.innovations.mean(axis=1) for each in (solution, standard))
    np.testing.assert_allclose(roughness, true, rtol=0.02, atol=1e-3)  # 1 is usual


@pytest.mark.parametrize("solver", ["cpu"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("regime", REGIMES)
def test_regimes(solver, kernel, regime, rng):
    case = neighbourhoods(rng, 200)
    args = (*case, KERNELS[kernel], REGIMES[regime])
    assert_same(make_solver(solver)(*args), reference.solve(*args))


@pytest.mark.parametrize("kernel", [*SUMS, "rbf+matern52", "exponential+rbf"])
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("broad", [Broad(0.3, np.array([4.0, 0.2, 30.0])), Broad(0.9, 5.0)])
def test_sums_of_kernels(kernel, regime, broad, rng):
    case = neighbourhoods(rng, 100)
    args = (*case, get_kernel_or_sum(kernel), replace(REGIMES[regime], broad=broad))
    assert_same(make_solver("cpu")(*args), reference.solve(*args))


def test_a_sum_of_a_kernel_with_itself_is_that_kernel(rng):
    case, params = neighbourhoods(rng, 50), REGIMES["ard"]
    alone = make_solver("cpu")(*case, KERNELS["matern32"], params)
    broad = replace(params, broad=Broad(0.4, params.lengthscale))
    assert_same(make_solver("cpu")(*case, get_kernel_or_sum("matern32+matern32"), broad), alone)


@pytest.mark.parametrize("solver", ["cpu"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("params", [Hyperparameters(2.0, 30.0, 1e-6), Hyperparameters(5.0, 1e3, 1e-6)])
@pytest.mark.parametrize("value", [0.0, 1e-3])
def test_variances_hold_when_the_targets_say_nothing(solver, kernel, params, value, rng):
    X_star, N, y = neighbourhoods(rng, 200)
    args = (X_star, N, value * y, KERNELS[kernel], params)
    assert_same(make_solver(solver)(*args), reference.solve(*args))


@pytest.mark.parametrize("solver", ["cpu"])
@pytest.mark.parametrize("m", [1, 2, 7, 16, 17, 33, 100, 401])
def test_any_number_of_neighbours(solver, m, rng):
    args = (*neighbourhoods(rng, m), KERNELS["exponential"], REGIMES["typical"])
    assert_same(make_solver(solver)(*args), reference.solve(*args))


@pytest.mark.parametrize("solver", ["cpu"])
@pytest.mark.parametrize("d", [1, 2, 50])
def test_any_number_of_columns(solver, d, rng):
    N = rng.normal(size=(5, 60, d))
    N = np.take_along_axis(N, np.argsort((N**2).sum(axis=2), axis=1)[..., None], axis=1).astype(np.float32)
    X_star = np.zeros((5, d), np.float32)
    args = (X_star, N, rng.normal(size=(5, 60)), KERNELS["matern32"], Hyperparameters(np.sqrt(d), 1.0, 0.1))
    assert_same(make_solver(solver)(*args), reference.solve(*args))


@pytest.mark.parametrize("solver", ["cpu", "reference"])
def test_the_query_among_the_rows_without_noise_is_returned(solver, rng):
    X_star, N, y = neighbourhoods(rng, 20)
    N[:, 0] = X_star
    solution = make_solver(solver)(X_star, N, y, KERNELS["exponential"], Hyperparameters(1.0, 1.0, 0.0))
    np.testing.assert_allclose(solution.mean, y[:, 0], atol=1e-4)
    assert (solution.variance >= 0).all()


@pytest.mark.parametrize("solver", ["cpu", "reference"])
def test_repeated_rows_without_noise_get_a_bounded_recorded_jitter(solver, rng):
    X_star, N, y = neighbourhoods(rng, 30)
    N[:, 1:] = N[:, :1]  # one place, thirty conflicting values
    solution = make_solver(solver)(X_star, N, y, KERNELS["rbf"], Hyperparameters(1.0, 1.0, 0.0))
    assert np.isfinite(solution.mean).all()
    assert (solution.variance >= 0).all()
    assert 0 < solution.jitter.max() <= 1e-4


@pytest.mark.parametrize("solver", ["cpu"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_far_away_the_prior_returns(solver, kernel, rng):
    X_star, N, y = neighbourhoods(rng, 50)
    params = Hyperparameters(1e-3, 2.0, 0.01)
    solution = make_solver(solver)(X_star + np.float32(1e15), N, y, KERNELS[kernel], params)
    np.testing.assert_allclose(solution.mean, 0, atol=1e-6)
    np.testing.assert_allclose(solution.variance, params.kernel_variance + params.noise_variance, rtol=1e-5)


def test_a_query_is_answered_alike_alone_and_in_company(rng):
    X_star, N, y = neighbourhoods(rng, 64)
    args = (KERNELS["matern52"], REGIMES["smooth"])
    together = make_solver("cpu")(X_star, N, y, *args)
    for q in range(len(X_star)):
        alone = make_solver("cpu")(X_star[q : q + 1], N[q : q + 1], y[q : q + 1], *args)
        assert (alone.mean[0], alone.variance[0]) == (together.mean[q], together.variance[q])
