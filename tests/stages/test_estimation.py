import numpy as np
import pytest
from scipy.stats import multivariate_normal

from gpnn.errors import InvalidInputError
from gpnn.kernels import KERNELS, squared_distances
from gpnn.stages.estimation import BlockLikelihood, estimate


@pytest.fixture
def blocks(rng):
    X = rng.normal(size=(3, 43, 4))
    X[0, 5] = X[0, 6]  # a repeated row
    return X, np.sin(X[..., 0]) + 0.1 * rng.normal(size=(3, 43))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n_lengthscales", [1, 4])
def test_value_and_gradient(blocks, kernel, n_lengthscales, rng):
    X, y = blocks
    likelihood = BlockLikelihood(X, y, KERNELS[kernel])
    theta = np.concatenate([rng.uniform(0.5, 2, n_lengthscales), [1.3, 0.2]])
    loss, gradient = likelihood(theta)
    expected = 0.0
    for X_b, y_b in zip(X / theta[:-2], y, strict=True):
        K = theta[-2] * KERNELS[kernel].correlation(squared_distances(X_b, X_b)) + theta[-1] * np.eye(43)
        expected -= multivariate_normal.logpdf(y_b, cov=K) / y.size
    assert loss == pytest.approx(expected, rel=1e-10)
    steps = 1e-6 * np.eye(len(theta))
    numerical = [(likelihood(theta + h)[0] - likelihood(theta - h)[0]) / 2e-6 for h in steps]
    np.testing.assert_allclose(gradient, numerical, atol=1e-7)


def test_blocks_of_unequal_size(blocks):
    X, y = ([part[0], part[1][:-1], part[2][:7]] for part in blocks)
    theta = np.array([0.9, 1.1, 0.1])
    together = BlockLikelihood(X, y, KERNELS["rbf"])(theta)
    apart = [BlockLikelihood([X_b], [y_b], KERNELS["rbf"])(theta) for X_b, y_b in zip(X, y, strict=True)]
    share = np.array([43, 42, 7]) / 92
    assert together[0] == pytest.approx(share @ [loss for loss, _ in apart])
    np.testing.assert_allclose(together[1], share @ np.array([gradient for _, gradient in apart]))


def test_adam_takes_the_steps_it_is_told_to(blocks):
    found = estimate(*blocks, KERNELS["rbf"], "adam", n_steps=7)
    assert found.n_evaluations == 8  # and one for the final loss
    still = estimate(*blocks, KERNELS["rbf"], "adam", n_steps=7, rate=1e-9).params
    assert still.lengthscale == pytest.approx(np.log(2), rel=1e-6)
    assert abs(found.params.lengthscale - np.log(2)) > 0.1


def test_singular_blocks_cost_infinitely_much(blocks):
    X, y = blocks
    assert BlockLikelihood(X, y, KERNELS["rbf"])(np.array([1e3, 1e4, 0.0]))[0] == np.inf


@pytest.mark.parametrize("optimizer", ["lbfgs", "adam"])
def test_recovers_the_parameters_of_a_simulated_process(rng, optimizer):
    X = rng.uniform(0, 4, size=(8, 150, 2))
    K = [0.8 * KERNELS["matern32"].correlation(squared_distances(b / 0.7, b / 0.7)) + 0.1 * np.eye(150) for b in X]
    y = np.array([rng.multivariate_normal(np.zeros(150), k) for k in K])
    params = estimate(X, y, KERNELS["matern32"], optimizer).params
    assert params.lengthscale == pytest.approx(0.7, rel=0.2)
    assert params.kernel_variance == pytest.approx(0.8, rel=0.4)
    assert params.noise_variance == pytest.approx(0.1, rel=0.2)


def test_threads_do_not_change_the_numbers(blocks):
    X, y = blocks
    theta = np.array([0.9, 1.1, 0.1])
    one, two = (BlockLikelihood(X, y, KERNELS["rbf"], n_jobs)(theta) for n_jobs in (1, 3))
    assert one[0] == two[0]
    np.testing.assert_array_equal(one[1], two[1])


def test_unknown_optimizer(blocks):
    with pytest.raises(InvalidInputError, match="lbfgs"):
        estimate(*blocks, KERNELS["rbf"], "sgd")
