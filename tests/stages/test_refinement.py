"""The predictive likelihood, what it is minimised with, and what comes of it."""

from dataclasses import replace

import numpy as np
import pytest

from gpnn import Broad, Hyperparameters
from gpnn.engines import Probes, reference
from gpnn.engines.cpu.learner import CPULearner
from gpnn.engines.local import Noise
from gpnn.kernels import KERNELS, get_kernel, get_kernel_or_sum
from gpnn.stages.refinement import (
    LowRankMap,
    TwoMetrics,
    predict,
    promise_of_map,
    rank_of_map,
    refine,
    refine_map,
    start_in,
)


def the_last_given_the_others(X, y, noise=None):
    """What a learner knows of many probes, alike but for how the rows are numbered."""
    s = len(X)
    noise = None if noise is None else Noise(*noise.T)
    learner = CPULearner(X, y, 0, 1, noise)
    last = np.full(3, s - 1)
    probes = Probes(X[last], y[last], last, None if noise is None else noise[last])
    return learner.among(probes, np.tile(np.arange(s - 1), (3, 1)))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("s", "d", "known"), [(32, 5, False), (20, 1, False), (2, 3, False), (9, 9, False), (20, 2, True)]
)
def test_predictive_likelihood_is_that_of_equations_5_to_7_and_its_gradient_is_right(kernel, s, d, known, rng):
    X, y = rng.normal(size=(s, d)), rng.normal(size=s)
    theta = np.concatenate([rng.uniform(0.5, 2, d), [1.3, 0.2]])
    noise = rng.uniform(0.1, 2, size=(s, 2)) if known else None
    around, kernel = the_last_given_the_others(X, y, noise), get_kernel(kernel)
    each = np.full(s, 0.2) if noise is None else 0.2 * noise[:, 0] + noise[:, 1]
    params = Hyperparameters(theta[:d], theta[d], theta[d + 1])
    expected = reference.solve(X[-1:], X[None, :-1], y[None, :-1], kernel, params, each[None, :-1])
    law, innovations = around.predict(kernel, params)
    np.testing.assert_allclose(law.mean, np.repeat(expected.mean, 3), rtol=1e-10)
    np.testing.assert_allclose(law.variance, np.repeat(expected.variance - 0.2 + each[-1], 3), rtol=1e-10)
    np.testing.assert_allclose(innovations, np.repeat(expected.innovations, 3, axis=0), rtol=1e-8)

    def loss(theta):
        law, _ = around.predict(kernel, Hyperparameters.from_vector(theta, d))
        return np.sum(0.5 * (np.log(2 * np.pi * law.variance) + (y[-1] - law.mean) ** 2 / law.variance))

    gradient, count, innovation = around.gradient(np.arange(3), kernel, theta, 1.0, 1.0)
    assert count == 3
    assert innovation == pytest.approx(innovations[:, 1:].mean() if s > 2 else 0.0)
    numerical = [(loss(theta + h) - loss(theta - h)) / 2e-6 for h in 1e-6 * np.eye(d + 2)]
    np.testing.assert_allclose(gradient, numerical, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("known", [False, True])
def test_the_gradient_in_a_map_of_the_columns_is_right(kernel, known, rng):
    X, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    noise = rng.uniform(0.1, 2, size=(12, 2)) if known else None
    x_map, kernel = rng.normal(size=(3, 3)), get_kernel(kernel)

    def loss(x_map, variances):
        law, _ = the_last_given_the_others(X @ x_map, y, noise).predict(kernel, Hyperparameters(1.0, *variances))
        return np.sum(0.5 * (np.log(2 * np.pi * law.variance) + (y[-1] - law.mean) ** 2 / law.variance))

    around, variances = the_last_given_the_others(X, y, noise), np.array([1.3, 0.2])
    by_map, by_variances, count, _ = around.map_gradient(np.arange(3), kernel, x_map, variances, 1.0, 1.0)
    assert count == 3
    steps = 1e-6 * np.eye(9).reshape(9, 3, 3)
    numerical = [(loss(x_map + h, variances) - loss(x_map - h, variances)) / 2e-6 for h in steps]
    np.testing.assert_allclose(by_map.ravel(), numerical, atol=1e-5)
    numerical = [(loss(x_map, variances + h) - loss(x_map, variances - h)) / 2e-6 for h in 1e-6 * np.eye(2)]
    np.testing.assert_allclose(by_variances, numerical, atol=1e-5)


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
    metric = TwoMetrics(d)
    np.testing.assert_allclose(metric.params(metric.start(params)).as_vector(d), theta)


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


def test_a_map_of_few_directions_has_the_slopes_of_its_numbers(rng):
    """Against differences of what the map itself says: Σ by_E · dE."""
    metric = LowRankMap(np.linalg.qr(rng.normal(size=(6, 2)))[0])
    own, by_E = rng.normal(size=24), rng.normal(size=(6, 6))
    np.fill_diagonal(by_E, 0.0)
    found = metric.in_own(by_E, own)
    for k, h in enumerate(1e-6 * np.eye(24)):
        numerical = np.sum(by_E * (metric.elements(own + h) - metric.elements(own - h))) / 2e-6
        assert found[k] == pytest.approx(numerical, rel=1e-6, abs=1e-8)
    assert np.diag(metric.elements(own)) == pytest.approx(0)


def test_of_many_columns_a_map_finds_few_directions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 50)).astype(np.float32)
    direction = rng.normal(size=50) / np.sqrt(50)
    y = np.sin(2 * X @ direction) + 0.02 * rng.normal(size=3000)
    learner, kernel = CPULearner(X, y, seed=0, n_jobs=1), get_kernel("matern52")
    learn, judge = (probes_of(X, y, numbers) for numbers in (np.arange(500, 3000), np.arange(500)))
    start = refine(learner, learn, kernel, Hyperparameters(5.0, 1.0, 0.1), (40,), np.random.default_rng(0))
    assert promise_of_map(learner, learn, kernel, start, np.random.default_rng(1)) > 0.1
    x_map, params = refine_map(learner, learn, kernel, start, (50,) * 3, np.random.default_rng(1))
    mapped = predict(learner.after(x_map), judge.after(x_map), kernel, params)
    laws = predict(learner, judge, kernel, start)[0], mapped[0]
    before, after = (np.sqrt(np.mean((judge.y - law.mean) ** 2)) for law in laws)
    assert after < 0.6 * before
    shuffled = rng.permutation(y)
    learner, learn = CPULearner(X, shuffled, seed=0, n_jobs=1), probes_of(X, shuffled, np.arange(3000))
    assert promise_of_map(learner, learn, kernel, start, np.random.default_rng(1)) < 0.01


@pytest.mark.parametrize(
    ("n", "d", "rank"),
    [(10**5, 5, 5), (1000, 5, 0), (3000, 20, 8), (16_000, 40, 40), (15_999, 40, 8), (10**5, 1, 0), (3000, 128, 2),
     (10**6, 129, 0), (1500, 2, 2)],
)  # fmt: skip
def test_how_many_directions_rows_can_tell(n, d, rank):
    assert rank_of_map(n, d) == rank


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
    theta, kernel = np.array([0.7, 1.0, 1.5, 1.3, 0.2]), get_kernel(kernel)
    gradient, _, innovation = the_last_given_the_others(X, y).gradient(np.arange(3), kernel, theta, 0.3, 2.0)
    scale = 0.7 * innovation / 2.0 + 0.3
    in_units = the_last_given_the_others(X, y / np.sqrt(scale))
    expected, _, _ = in_units.gradient(np.arange(3), kernel, theta, 1.0, 2.0)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)


def test_singular_queries_are_passed_over(rng):
    rows = np.concatenate([np.zeros((3, 2)), rng.normal(size=(3, 2))]).astype(np.float32)
    y, neighbors = rng.normal(size=6), np.array([[1, 2], [3, 4], [2, 2]])
    around = CPULearner(rows, y, 0, 1).among(probes_of(rows, y, np.array([0, 5, 3])), neighbors)
    theta = np.array([1.0, 1.0, 1.0, 0.0])
    gradient, count, _ = around.gradient(np.arange(3), get_kernel("rbf"), theta, 1.0, 1.0)
    alone, one, _ = around.gradient(np.array([1]), get_kernel("rbf"), theta, 1.0, 1.0)
    assert (count, one) == (1, 1)
    np.testing.assert_allclose(gradient, alone)
    law, _ = around.predict(get_kernel("rbf"), Hyperparameters(1.0, 1.0, 0.0))
    np.testing.assert_array_equal(np.isfinite(law.variance), [False, True, False])


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
