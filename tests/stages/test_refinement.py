"""The predictive likelihood, what it is minimised with, and what comes of it."""

from dataclasses import replace

import numpy as np
import pytest

from gpnn import Broad, Hyperparameters
from gpnn.engines import Probes, reference
from gpnn.engines.compiled.covariance import KERNEL_NUMBERS
from gpnn.engines.compiled.likelihood import predictive_likelihood, predictive_likelihoods, scratch
from gpnn.engines.cpu.learner import CPULearner
from gpnn.engines.local import Noise
from gpnn.kernels import KERNELS, get_kernel, get_kernel_or_sum
from gpnn.stages.refinement import TwoMetrics, predict, promise_of_map, refine, refine_map, start_in


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("s", "d", "known"), [(32, 5, False), (20, 1, False), (2, 3, False), (9, 9, False), (20, 2, True)]
)
def test_predictive_likelihood_is_that_of_equations_5_to_7_and_its_gradient_is_right(kernel, s, d, known, rng):
    X, y = rng.normal(size=(s, d)), rng.normal(size=s)
    theta = np.concatenate([rng.uniform(0.5, 2, d), [1.3, 0.2]])
    work, outcome, innovations = scratch(s, d), np.empty(2), np.empty(s - 1)
    noise = rng.uniform(0.1, 2, size=(s, 2)) if known else None

    def value(theta):
        gradient = np.empty(d + 2)
        loss = predictive_likelihood(
            KERNEL_NUMBERS[kernel], X, y, theta[:d].copy(), theta[d], theta[d + 1], *work, gradient, outcome,
            innovations, share, typical, noise,
        )  # fmt: skip
        return loss, gradient

    share, typical = 1.0, 1.0
    loss, gradient = value(theta)
    params = Hyperparameters(theta[:d], theta[d], theta[d + 1])
    each = np.full(s, 0.2) if noise is None else 0.2 * noise[:, 0] + noise[:, 1]
    law = reference.solve(X[-1:], X[None, :-1], y[None, :-1], get_kernel(kernel), params, each[None, :-1])
    error, variance = y[-1] - law.mean[0], law.variance[0] - 0.2 + each[-1]
    np.testing.assert_allclose(outcome, [error, variance], rtol=1e-10)
    np.testing.assert_allclose(innovations, law.innovations[0], rtol=1e-8)
    A, _, *others = work
    alone, none = np.empty(2), np.empty(0)
    without = predictive_likelihood(
        KERNEL_NUMBERS[kernel], X, y, theta[:d].copy(), theta[d], theta[d + 1], A, none, *others, none, alone,
        innovations, share, typical, noise,
    )  # fmt: skip
    np.testing.assert_allclose([without, *alone], [loss, *outcome], rtol=1e-12)
    assert loss == pytest.approx(0.5 * (np.log(2 * np.pi * variance) + error**2 / variance), rel=1e-10)
    numerical = [(value(theta + h)[0] - value(theta - h)[0]) / 2e-6 for h in 1e-6 * np.eye(d + 2)]
    np.testing.assert_allclose(gradient, numerical, atol=1e-7)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kernel", ["matern32+exponential", "rbf+matern52"])
def test_the_gradient_of_a_sum_of_kernels_is_right(kernel, known, rng):
    X, y, d = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=60), 3
    noise = Noise(rng.uniform(0.2, 2, 60), rng.uniform(0, 1, 60)) if known else None
    probes = Probes(X[:5], y[:5], np.arange(5), noise[:5] if known else None)
    params = Hyperparameters(np.array([0.5, 1.0, 2.0]), 1.3, 0.2, Broad(0.3, np.array([4.0, 2.0, 0.7])))
    near = CPULearner(X, y, 0, 1, noise).neighborhoods(probes, params.metric, 18)
    kernel, theta = get_kernel_or_sum(kernel), params.as_vector(d)

    def loss(theta):
        law, _ = near.predict(kernel, Hyperparameters.from_vector(theta, d))
        return np.sum(0.5 * (np.log(2 * np.pi * law.variance) + (probes.y - law.mean) ** 2 / law.variance))

    gradient, count, _ = near.gradient(np.arange(5), kernel, theta, 1.0, 1.0)
    assert count == 5
    numerical = [(loss(theta + h) - loss(theta - h)) / 2e-6 for h in 1e-6 * np.eye(len(theta))]
    np.testing.assert_allclose(gradient, numerical, atol=1e-6)
    u, metric = TwoMetrics(d).start(params), TwoMetrics(d)
    slope = metric.slope(near, np.arange(5), kernel, u, 1.0)[0]
    np.testing.assert_allclose(metric.params(u).as_vector(d), theta)
    scaled = near.gradient(np.arange(5), kernel, theta, 0.3, 1.0)[0]
    np.testing.assert_allclose(slope, scaled * [*theta[:-1], 0.3 * 0.7])


def test_a_sum_finds_a_trend_beneath_a_pattern():
    """A pattern in one column and a slow trend in another, added: no single metric serves both."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 4)).astype(np.float32)
    y = np.sin(12 * X[:, 0]) + np.sin(12 * X[:, 1]) + np.sin(3 * X[:, 2]) + 0.05 * rng.normal(size=3000)
    learner, rounds = CPULearner(X, y, seed=0, n_jobs=1), (60, 60, 60)
    learn, judge = (probes_of(X, y, numbers) for numbers in (np.arange(500, 3000), np.arange(500)))
    start = Hyperparameters(np.ones(4), 1.0, 0.1)
    errors = []
    for name, broad in (("matern32", None), ("matern32+matern32", Broad(0.5, np.full(4, 4.0)))):
        kernel = get_kernel_or_sum(name)
        params = refine(learner, learn, kernel, replace(start, broad=broad), rounds, np.random.default_rng(0))
        law, _ = predict(learner, judge, kernel, params)
        errors.append(np.sqrt(np.mean((judge.y - law.mean) ** 2)))
    assert errors[1] < 0.9 * errors[0]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_gradient_in_a_map_is_right(kernel, known, rng):
    X, y = rng.normal(size=(40, 3)).astype(np.float32), rng.normal(size=40)
    noise = Noise(rng.uniform(0.2, 2, 40), rng.uniform(0, 1, 40)) if known else None
    probes = Probes(X[:4], y[:4], np.arange(4), noise[:4] if known else None)
    near = CPULearner(X, y, seed=0, n_jobs=1, noise=noise).neighborhoods(probes, np.eye(3), 13)
    x_map, variances, batch = np.eye(3) + 0.3 * rng.normal(size=(3, 3)), np.array([0.9, 0.05]), np.array([0, 2, 3])

    def loss(x_map, variances):
        """The mean −log density of what `predict` says in the mapped space."""
        after = CPULearner((X @ x_map), y, 0, 1, noise).among(probes[batch].after(x_map), near.neighbors[batch])
        after = replace(after, probes=replace(after.probes, X=probes.X[batch] @ x_map))
        law, _ = after.predict(get_kernel(kernel), Hyperparameters(1.0, *variances))
        return np.sum(0.5 * (np.log(2 * np.pi * law.variance) + (probes.y[batch] - law.mean) ** 2 / law.variance))

    by_map, by_variances, count, _ = near.map_gradient(batch, get_kernel(kernel), x_map, variances, 1.0, 1.0)
    assert count == 3
    for k, h in enumerate(1e-6 * np.eye(9).reshape(9, 3, 3)):
        numerical = (loss(x_map + h, variances) - loss(x_map - h, variances)) / 2e-6
        assert by_map.flat[k] == pytest.approx(numerical, rel=1e-4, abs=1e-6)
    for k, h in enumerate(1e-6 * np.eye(2)):
        numerical = (loss(x_map, variances + h) - loss(x_map, variances - h)) / 2e-6
        assert by_variances[k] == pytest.approx(numerical, rel=1e-4, abs=1e-6)


def test_a_map_finds_the_sum_that_matters():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 4)).astype(np.float32)
    y = np.sin(6 * (X[:, 0] + X[:, 1] + X[:, 2])) + 0.02 * rng.normal(size=3000)
    learner, kernel, rounds = CPULearner(X, y, seed=0, n_jobs=1), get_kernel("matern52"), (60, 60)
    learn, judge = (probes_of(X, y, numbers) for numbers in (np.arange(500, 3000), np.arange(500)))
    start = refine(learner, learn, kernel, Hyperparameters(1.0, 1.0, 0.1), rounds, np.random.default_rng(0))
    x_map, params = refine_map(learner, learn, kernel, start, rounds, np.random.default_rng(1))
    along, across = np.array([1.0, 1, 0, 0]) @ x_map, np.array([1.0, -1, 0, 0]) @ x_map
    assert np.linalg.norm(across) < 0.3 * np.linalg.norm(along)
    mapped = predict(learner.after(x_map), judge.after(x_map), kernel, params)
    laws = predict(learner, judge, kernel, start)[0], mapped[0]
    before, after = (np.sqrt(np.mean((judge.y - law.mean) ** 2)) for law in laws)
    assert after < 0.9 * before


def test_a_map_promises_something_only_where_columns_belong_together(rng):
    X = rng.uniform(-1, 1, size=(3000, 5)).astype(np.float32)
    noise, kernel = 0.1 * rng.normal(size=3000), get_kernel("matern52")
    promises = []
    for y in (np.sin(4 * X[:, 0]) + X[:, 1] + noise, np.sin(3 * X[:, :4].sum(axis=1)) + noise):
        learner, learn = CPULearner(X, y, seed=0, n_jobs=1), probes_of(X, y, np.arange(3000))
        params = refine(learner, learn, kernel, Hyperparameters(1.0, 1.0, 0.1), (60, 60), np.random.default_rng(0))
        promises.append(promise_of_map(learner, learn, kernel, params, np.random.default_rng(1)))
    assert promises[0] < 0.01
    assert promises[1] > 0.1


def test_another_kernel_begins_where_it_predicts_well(relevant_and_not):
    X, y = relevant_and_not
    learner, learn = CPULearner(X, y, seed=0, n_jobs=1), probes_of(X, y, np.arange(3000))
    rough = refine(
        learner, learn, get_kernel("exponential"), Hyperparameters(1.0, 1.0, 0.1), (60, 60), np.random.default_rng(0)
    )
    start = start_in(learner, learn, get_kernel("rbf"), rough, np.random.default_rng(1))
    np.testing.assert_allclose(start.lengthscale / start.lengthscale[0], rough.lengthscale / rough.lengthscale[0])
    laws = [predict(learner, learn[:500], get_kernel("rbf"), params)[0] for params in (rough, start)]
    before, after = (np.mean(np.log(law.variance) + (learn.y[:500] - law.mean) ** 2 / law.variance) for law in laws)
    assert after < before - 0.5


@pytest.mark.parametrize("kernel", KERNELS)
def test_scaled_likelihood_is_that_of_targets_in_units_of_the_neighbourhood(kernel, rng):
    X, y = rng.normal(size=(20, 3)), 5 * rng.normal(size=20)
    theta, work = np.array([0.7, 1.0, 1.5]), scratch(20, 3)

    def value(y, share):
        gradient, outcome, innovations = np.empty(5), np.empty(2), np.empty(19)
        loss = predictive_likelihood(
            KERNEL_NUMBERS[kernel], X, y, theta, 1.3, 0.2, *work, gradient, outcome, innovations, share, 2.0
        )
        return loss, gradient, outcome, innovations

    loss, gradient, outcome, innovations = value(y, 0.3)
    scale = 0.7 * innovations[1:].mean() / 2.0 + 0.3
    expected_loss, expected_gradient, _, _ = value(y / np.sqrt(scale), 1.0)
    assert loss == pytest.approx(expected_loss)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(outcome, value(y, 1.0)[2])  # the prediction itself is not touched


def test_singular_queries_are_passed_over(rng):
    rows = np.zeros((3, 2), np.float32)
    gradient, outcomes, innovations = np.empty(4), np.empty((2, 2)), np.empty((2, 2))
    X_star = np.array([[0.0, 0.0], [1.0, 1.0]], np.float32)
    total, count = predictive_likelihoods(
        0, X_star, np.zeros(2), rows, np.zeros(3), np.array([[0, 1], [2, 2]]), np.ones(2), 1.0, 0.0,
        *scratch(3, 2), gradient, outcomes, innovations,
    )  # fmt: skip
    assert count == 0
    assert total == 0


def probes_of(X, y, numbers):
    return Probes(X[numbers], y[numbers], numbers)


def test_a_row_is_never_its_own_neighbour(rng):
    X = rng.normal(size=(300, 3)).astype(np.float32)
    numbers = rng.permutation(300)[:50]
    learner = CPULearner(X, np.zeros(300), seed=0, n_jobs=1)
    for lengthscale in ([1.0, 0.1, 10.0], [2.0, 0.3, 20.0], [3.0, 0.3, 10.0]):  # built, stretched, stretched again
        probes = probes_of(X, np.zeros(300), numbers)
        found = learner.neighborhoods(probes, np.array(lengthscale), 12).neighbors
        Z = X / np.array(lengthscale, np.float32)
        for number, neighbors in zip(numbers, found, strict=True):
            assert number not in neighbors
            nearest = np.argsort(np.linalg.norm(Z - Z[number], axis=1))[1:13]
            assert set(neighbors) == set(nearest)


@pytest.fixture(scope="module")
def relevant_and_not():
    """Six columns, of which y depends on the first finely, on the second coarsely, and on no other."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 6)).astype(np.float32)
    return X, np.sin(8 * X[:, 0]) + 0.5 * X[:, 1] + 0.05 * rng.normal(size=3000)


def test_refinement_finds_which_columns_matter(relevant_and_not):
    X, y = relevant_and_not
    learn, judge = (probes_of(X, y, numbers) for numbers in (np.arange(500, 3000), np.arange(500)))
    start = Hyperparameters(1.0, 1.0, 0.1)
    learner = CPULearner(X, y, seed=0, n_jobs=1)
    refined = refine(learner, learn, get_kernel("matern32"), start, (60, 60), np.random.default_rng(0))
    assert refined.lengthscale[0] < 0.3 * refined.lengthscale[1]
    assert refined.lengthscale[1] < 0.5 * refined.lengthscale[2:].min()
    outcomes = [predict(learner, judge, get_kernel("matern32"), params) for params in (start, refined)]
    errors = [np.sqrt(np.mean((judge.y - law.mean) ** 2)) for law, _ in outcomes]
    assert errors[1] < 0.3 * errors[0]
    assert errors[1] < 0.08  # the noise is 0.05
    again = refine(
        CPULearner(X, y, seed=0, n_jobs=2), learn, get_kernel("matern32"), start, (60, 60), np.random.default_rng(0)
    )
    assert again == refined


def test_a_gradient_of_many_columns_is_the_same_on_any_number_of_threads(rng):
    X, y = rng.normal(size=(400, 20)).astype(np.float32), rng.normal(size=400)
    theta, batch, probes = np.append(np.full(20, 3.0), [1.0, 0.1]), np.arange(100), probes_of(X, y, np.arange(200))
    found = [
        CPULearner(X, y, 0, n_jobs).neighborhoods(probes, 1.0, 31).gradient(batch, get_kernel("rbf"), theta, 0.3, 1.0)
        for n_jobs in (1, 3)
    ]
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]
    assert found[0][1] == 100
