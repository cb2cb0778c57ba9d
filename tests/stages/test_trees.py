"""Boosted trees beside the process: kept only where judges gain."""

import numpy as np
import pytest

from gpnn.common.types import Prediction
from gpnn.stages.forest import Binned, Growth
from gpnn.stages.mean import Linear
from gpnn.stages.trees import Trees, gains_of_columns, grow_few, learn_trees
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
    return Binned.of(X).grow(y, np.arange(3000), Growth(30, 0.1, 31), seed=0).forest


def test_beside_the_process(forest, steps):
    """By hand: the mean and the variance of the mixture, less of it where the process is to be alone."""
    X = steps[0][:3]
    law = Prediction(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    trees = Trees(forest, Weighing(np.array([0.75, 0.25]), alpha=1.5, floor=0.1))
    said = forest(X)
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
    found = Trees(forest, Weighing(np.array([0.5, 0.5]))).beside(law, X)
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
    assert told["weight"] == found.trees.weight > 0.3
    assert told["rmse"] < 1
    assert told["gain"] > 2 * told["gain_standard_error"]
    assert len(found.residuals) == len(found.some) == 1200  # a fifth of all rows: from these no tree learned


def test_laws_of_judges_are_by_trees_that_had_not_seen_them(steps):
    """Those that answer queries have grown from all rows since, and are closer to these judges than to new rows."""
    X, y = steps
    found, _ = learned(X, y, blurred(X), 0.35)
    rows = np.arange(0, 6000, 4)[found.some]
    before = Prediction(blurred(X)[rows], np.full(len(rows), 0.35**2))
    now = found.trees.beside(before, X[rows])
    assert np.mean((y[rows] - now.mean) ** 2) < 0.9 * np.mean((y[rows] - found.law.mean) ** 2)
    assert np.mean((y[rows] - found.law.mean) ** 2 / found.law.variance) == pytest.approx(1, abs=0.1)


def test_residuals_are_those_of_the_law_with_them():
    """Four tables: of one, the few rows between two thresholds decide the mean."""
    found = [learned(X, y, blurred(X), 0.35)[0] for X, y in map(jumps, range(4))]
    assert np.mean([one.residuals**2 for one in found]) == pytest.approx(1, abs=0.1)


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
    found, told = learned(X, y, blurred(X), 0.35)
    trees = found.trees
    monkeypatch.setattr("gpnn.stages.trees._most_rows", lambda columns: 4800)  # all but the judges: there are no more
    found, told_of_judged = learned(X, y, blurred(X), 0.35)
    judged = found.trees
    assert len(judged.forest.roots) == told_of_judged["trees"]
    assert len(trees.forest.roots) == 2 * round(1.25 * told["trees"])
    new, outcome = jumps(5)
    before, after = (np.mean((one.forest(new) - outcome) ** 2) for one in (judged, trees))
    assert after < before


def test_leaves_grow_with_rows(steps, monkeypatch):
    grown = []
    grow = Binned.grow
    monkeypatch.setattr(
        Binned, "grow", lambda self, y, rows, how, seed: grown.append(how) or grow(self, y, rows, how, seed)
    )
    learned(*steps, blurred(steps[0]), 0.35)
    few, few_on_line, judged, *again = [how.leaves for how in grown]
    assert (few, few_on_line, judged) == (31, 31, 32)  # 4,800 rows, 150 for each
    assert again == [32, 32]


def test_columns_that_count_only_together():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 30))
    gains = gains_of_columns(Binned.of(X), np.sign(X[:, 3] * X[:, 7]) + 0.1 * rng.normal(size=6000))
    assert set(np.argsort(-gains)[:2]) == {3, 7}


def test_of_many_columns_those_that_say_something_come_first():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 90))
    X[:, 50] = 1.0
    y = 3 * np.sign(X[:, 40]) + np.sin(2 * X[:, 3]) + 0.1 * rng.normal(size=3000)
    grown, columns = grow_few(X, y, np.arange(3000))
    assert list(columns[:2]) == [40, 3]
    assert 50 not in columns
    assert len(columns) > 64  # of which each tree sees some
    new = rng.normal(size=(500, 90))
    truth = 3 * np.sign(new[:, 40]) + np.sin(2 * new[:, 3])
    for one in grown:  # from y, and from what a line leaves
        assert np.mean((one.forest(new) - truth) ** 2) < 0.1 * np.var(truth)
    _, few = grow_few(X[:, :64], y, np.arange(3000))
    np.testing.assert_array_equal(few, np.arange(64))


def test_where_every_row_is_a_judge_each_hears_those_that_grew_without_it(steps):
    X, y = (of[:1200] for of in steps)
    told, rows = {}, np.arange(1200)
    process = Prediction(blurred(X), np.full(1200, 0.35**2))
    found = learn_trees(X, y, rows, process, True, 2, np.random.default_rng(0), told, None)
    assert told["kept"]
    assert len(found.residuals) == 1200
    new, outcome = jumps(5)
    alone = Prediction(blurred(new), np.full(6000, 0.35**2))
    together = found.trees.beside(alone, new)
    errors = [np.sqrt(np.mean((law.mean - outcome) ** 2)) for law in (alone, together)]
    assert errors[1] < 0.7 * errors[0]
    noise = np.random.default_rng(1).normal(size=1200)  # which trees that had seen a row would know
    nothing = Prediction(np.zeros(1200), np.ones(1200))
    assert learn_trees(X, noise, rows, nothing, True, 2, np.random.default_rng(0), told, None) is None
    hopeless = Prediction(y, np.full(1200, 1e-4))
    assert learn_trees(X, y + 0.01 * noise, rows, hopeless, True, 2, np.random.default_rng(0), told, None) is None
    assert told["few_rmse"] > 1.5


@pytest.mark.parametrize("n", [6000, 1200])
def test_they_begin_from_a_line_where_that_says_more(n):
    """Of a slope, a jump and much noise: the slope is a line's, from few rows, and only the jump is left to trees."""
    found, told, (X, y), (new, truth) = on_a_slope(n, jump=1.0)
    assert told["kept"]
    assert told["line"]
    assert told["trees"] > 0
    line = Linear().fit(X, y)
    np.testing.assert_allclose(found.forest.line.weights, line.weights)
    plain = Binned.of(X).grow(y, np.arange(n), Growth(told["trees"], 0.1, 31), seed=0).forest
    both, only_line, only_trees = (np.mean((said(new) - truth) ** 2) for said in (found.forest, line.predict, plain))
    assert both < 0.9 * only_trees
    assert both < 0.5 * only_line


@pytest.mark.parametrize("n", [6000, 1200])
def test_a_bare_line_where_there_is_nothing_else(n):
    found, told, (X, y), (new, truth) = on_a_slope(n, jump=0.0)
    assert told["kept"]
    assert (told["line"], told["trees"]) == (True, 0)
    np.testing.assert_allclose(found.forest(new), Linear().fit(X, y).predict(new))
    assert np.sqrt(np.mean((found.forest(new) - truth) ** 2)) < 0.1
    by_one = np.concatenate([found.forest(new[k : k + 1]) for k in range(9)])
    np.testing.assert_array_equal(by_one, found.forest(new)[:9])


def on_a_slope(n, jump):
    """What was found beside a process that sees a tenth of the slope, and rows without noise."""

    def truth(X):
        return X @ np.array([1.0, -0.5, 0.3, 0, 0, 0]) + jump * np.sign(X[:, 3])

    rng, told = np.random.default_rng(2), {}
    X, new = rng.normal(size=(2, n, 6))
    y = truth(X) + rng.normal(size=n)
    rows = np.arange(0, n, 4) if n > 2000 else np.arange(n)
    law = Prediction(0.1 * truth(X[rows]), np.full(len(rows), 2.0))
    few = few_trees(X, y, rows) if n > 2000 else None
    found = learn_trees(X, y, rows, law, True, 2, np.random.default_rng(0), told, few).trees
    return found, told, (X, y), (new, truth(new))


def test_too_few_judges_say_nothing(steps):
    found, told = learned(*steps, np.zeros(6000), 1.0, n_judges=300)
    assert (found, told) == (None, {"kept": False})
