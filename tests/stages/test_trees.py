"""Boosted trees beside the process: the same sums as scikit-learn's, kept only where judges gain."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from gpnn.common.types import Prediction
from gpnn.stages.trees import Forest, Trees, _grown, grow_few, learn_trees
from gpnn.stages.weighing import Weighing


def jumps(seed):
    """At thresholds, and a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(6000, 4))
    y = np.sign(X[:, 0]) * np.sign(X[:, 1] - 0.3) + 0.1 * rng.normal(size=len(X))
    return X, y


@pytest.fixture(scope="module")
def steps():
    return jumps(0)


@pytest.fixture(scope="module")
def forest(steps):
    X, y = steps
    with threadpool_limits(1, user_api="openmp"):
        model = HistGradientBoostingRegressor(max_iter=30, max_features=0.5, random_state=0).fit(X[:3000], y[:3000])
    return model, Forest.of(model)


def test_forest_is_scikit_learns(forest, steps):
    model, ours = forest
    np.testing.assert_allclose(ours(steps[0]), model.predict(steps[0]), rtol=1e-12, atol=1e-12)


def test_the_mean_of_two(forest, steps):
    other = HistGradientBoostingRegressor(max_iter=7, random_state=1).fit(*(of[3000:4000] for of in steps))
    both = Forest.mean_of([forest[1], Forest.of(other)])
    mean = (forest[0].predict(steps[0]) + other.predict(steps[0])) / 2
    np.testing.assert_allclose(both(steps[0]), mean, rtol=1e-12, atol=1e-12)


def test_each_row_is_answered_by_itself(forest, steps):
    X, ours = steps[0][:5000], forest[1]  # more than one block
    alone = np.concatenate([ours(X[i : i + 1]) for i in range(0, 5000, 617)])
    np.testing.assert_array_equal(ours(X, n_jobs=2)[::617], alone)


def test_rows_of_a_threshold_go_left():
    column, left = (np.array(of, np.int32) for of in ([1, -1, -1], [1, -1, -1]))
    stump = Forest(1.0, np.zeros(1, np.int32), column, np.array([0.5, 10.0, 20.0]), left)
    np.testing.assert_array_equal(stump(np.array([[9.0, 0.5], [9.0, 0.6], [-9.0, -1.0]])), [11.0, 21.0, 11.0])


def test_beside_the_process(forest, steps):
    """By hand: the mean and the variance of the mixture, less of it where the process is to be alone."""
    X = steps[0][:3]
    law = Prediction(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    trees = Trees(forest[1], Weighing(np.array([0.75, 0.25]), alpha=1.5, floor=0.1))
    said = forest[1](X)
    found = trees.beside(law, X)
    np.testing.assert_allclose(found.mean, 0.75 * law.mean + 0.25 * said)
    np.testing.assert_allclose(found.variance, 1.5 * (law.variance + 0.75 * 0.25 * (said - law.mean) ** 2) + 0.1)
    alone = trees.beside(law, X, np.array([1.0, 0.0, 0.5]))
    np.testing.assert_allclose(alone.mean, [law.mean[0], found.mean[1], (law.mean[2] + found.mean[2]) / 2])
    middle = np.sqrt(law.variance[2] * found.variance[2])
    np.testing.assert_allclose(alone.variance, [law.variance[0], found.variance[1], middle])


def test_known_noise_is_not_theirs(forest, steps):
    X = steps[0][:3]
    law = Prediction(np.zeros(3), np.ones(3)).with_noise(np.array([0.0, 1.0, 2.0]))
    found = Trees(forest[1], Weighing(np.array([0.5, 0.5]))).beside(law, X)
    np.testing.assert_allclose(found.variance - found.own, [0.0, 1.0, 2.0])


def learned(X, y, mean, std, n_judges=1500):
    rows, told = np.arange(0, 4 * n_judges, 4), {}
    law = Prediction(mean[rows], np.full(len(rows), std**2))
    return learn_trees(X, y, rows, law, True, 1, np.random.default_rng(0), told, few_trees(X, y, rows)), told


def few_trees(X, y, rows):
    return lambda: grow_few(X, y, np.delete(np.arange(len(X)), rows))


def blurred(X):
    """As a process sees a jump."""
    return np.tanh(4 * X[:, 0]) * np.tanh(4 * (X[:, 1] - 0.3))


def test_kept_where_judges_gain(steps):
    found, told = learned(*steps, blurred(steps[0]), 0.35)
    assert told["kept"]
    trees, residuals = found
    assert told["weight"] == trees.weight > 0.3
    assert told["rmse"] < 1
    assert told["gain"] > 2 * told["gain_standard_error"]
    assert len(residuals) == 1200  # a fifth of all rows: from these no tree learned


def test_residuals_are_those_of_the_law_with_them():
    """Four tables: of one, the few rows between two thresholds decide the mean."""
    found = [learned(X, y, blurred(X), 0.35)[0] for X, y in map(jumps, range(4))]
    assert np.mean([residuals**2 for _, residuals in found]) == pytest.approx(1, abs=0.1)


def test_not_kept_where_the_process_is_right(steps):
    X, y = steps
    found, told = learned(X, y, np.sign(X[:, 0]) * np.sign(X[:, 1] - 0.3), 0.1)
    assert found is None
    assert not told["kept"]


def test_few_trees_say_where_more_are_hopeless(steps):
    X = steps[0]
    y = np.sin(9 * X).sum(axis=1)
    found, told = learned(X, y, y + 0.01 * np.cos(99 * X[:, 0]), 0.01)
    assert found is None
    assert told["few_rmse"] > 1.5
    assert "rmse" not in told


def test_once_judged_they_grow_from_the_judges_rows_too(steps, monkeypatch):
    X, y = steps
    (trees, _), told = learned(X, y, blurred(X), 0.35)
    monkeypatch.setattr("gpnn.stages.trees._most_rows", lambda X: 4800)  # all but the judges: there are no more
    (judged, _), _ = learned(X, y, blurred(X), 0.35)
    assert len(trees.forest.roots) == len(judged.forest.roots) == told["trees"]
    new, outcome = jumps(5)
    before, after = (np.mean((one.forest(new) - outcome) ** 2) for one in (judged, trees))
    assert after < before


def test_leaves_grow_with_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    sizes = [_grown(X, X[:, 0], np.arange(n), {"max_iter": 1}).settings["max_leaf_nodes"] for n in (1000, 15_000)]
    assert sizes == [31, 100]


def test_too_few_judges_say_nothing(steps):
    found, told = learned(*steps, np.zeros(6000), 1.0, n_judges=300)
    assert (found, told) == (None, {"kept": False})
