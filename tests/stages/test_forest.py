"""Boosted trees, held to scikit-learn's and to what defines them."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor
from threadpoolctl import threadpool_limits

from gpnn.stages.forest import Binned, Forest, Growth


def table(n=4000, d=5, levels=200, seed=0):
    """Fewer levels than bins, so that both put thresholds between the same values; and jumps, so that gains differ."""
    rng = np.random.default_rng(seed)
    X = rng.integers(levels, size=(n, d)) / levels
    y = np.sign(X[:, 0] - 0.4) * X[:, 1] + np.sin(5 * X[:, 2]) + 0.1 * rng.normal(size=n)
    return X, y


def grown(X, y, how, rows=None, seed=0):
    return Binned.of(X).grow(y, np.arange(len(X)) if rows is None else rows, how, seed).forest


@pytest.mark.parametrize("leaves", [2, 31, 100])
def test_one_tree_is_scikit_learns(leaves):
    X, y = table()
    tree = DecisionTreeRegressor(max_leaf_nodes=leaves, min_samples_leaf=20).fit(X, y)
    np.testing.assert_allclose(grown(X, y, Growth(1, 1.0, leaves))(X), tree.predict(X), atol=1e-6)


def test_boosted_as_by_scikit_learn():
    X, y = table()
    with threadpool_limits(1, user_api="openmp"):
        peer = HistGradientBoostingRegressor(max_iter=50, learning_rate=0.1, early_stopping=False).fit(X, y)
    new, truth = table(seed=1)
    ours, theirs = grown(X, y, Growth(50, 0.1, 31))(new), peer.predict(new)
    assert np.quantile(np.abs(ours - theirs), 0.99) < 1e-3  # where gains are all but equal, either may split first
    assert np.mean((ours - truth) ** 2) == pytest.approx(np.mean((theirs - truth) ** 2), rel=0.01)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_more_values_than_bins(dtype):
    """Thresholds are those of quantiles, and rows of a threshold go left in growing as in answering."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 3)).astype(dtype)
    y = np.where(X[:, 1] > np.sort(X[:, 1])[2500], 1.0, -1.0)
    binned = Binned.of(X)
    assert len(binned.ends) == 3 * 255
    said = binned.grow(y, np.arange(5000), Growth(40, 0.3, 31), seed=0).forest(X)
    assert np.mean(np.abs(said - y) > 0.5) < 0.01  # those between the quantiles on either side
    for k, column in enumerate(X.T):
        ends = binned.ends[binned.first[k] : binned.first[k + 1]]
        np.testing.assert_array_equal(binned.bins[k], [np.sum(value > ends) for value in column])


def test_rows_held_out_say_when_to_stop():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = X[:, 0] + 2 * rng.normal(size=3000)
    binned = Binned.of(X)
    stopped = binned.grow(y, np.arange(3000), Growth(400, 0.1, 31, patience=10), seed=0)
    whole = binned.grow(y, np.arange(3000), Growth(400, 0.1, 31), seed=0)
    assert 5 < stopped.n_trees < 100 == whole.n_trees - 300
    new = rng.normal(size=(3000, 4))
    errors = [np.mean((one.forest(new) - new[:, 0]) ** 2) for one in (stopped, whole)]
    assert errors[0] < 0.5 * errors[1]


def test_no_leaf_is_empty_where_nothing_is_left_to_gain():
    """Columns of few values, used up on the way down."""
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(900, 3)).astype(float)
    y = X[:, 0] + 10 * (rng.random(900) < 0.01)
    forest = grown(X, y, Growth(50, 0.1, 31, tried=0.4))
    leaves = [np.flatnonzero(forest.column[begin:end] < 0) for begin, end in _trees(forest)]
    assert np.isfinite(forest.value).all()
    for (begin, _), leaf in zip(_trees(forest), leaves, strict=True):
        reached = {_leaf(forest, begin, row) for row in np.unique(X, axis=0)}
        assert reached == {begin + at for at in leaf}


def _trees(forest):
    return zip(forest.roots, [*forest.roots[1:], len(forest.column)], strict=True)


def _leaf(forest, node, row):
    while forest.column[node] >= 0:
        node = forest.left[node] + (row[forest.column[node]] > forest.value[node])
    return node


def test_some_columns_in_another_order():
    """Trees speak of them by their numbers in the table."""
    X, y = table()
    some, how = np.array([2, 0, 1]), Growth(20, 0.1, 31)
    first = Binned.of(X, some).grow(y, np.arange(4000), how, seed=0).forest
    again = Binned.of(X).only(some).grow(y, np.arange(4000), how, seed=0).forest
    assert set(first.column) == {-1, 0, 1, 2}
    np.testing.assert_array_equal(first(X), again(X))
    np.testing.assert_array_equal(first(X), grown(X[:, some], y, how)(X[:, some]))


def test_only_the_rows_that_were_given():
    X, y = table()
    rows = np.arange(0, 4000, 2)
    wrong = np.where(np.isin(np.arange(4000), rows), y, 1e6)
    np.testing.assert_array_equal(
        grown(X, wrong, Growth(5, 0.1, 31), rows)(X), grown(X, y, Growth(5, 0.1, 31), rows)(X)
    )


def test_random_columns_differ_by_seed():
    X, y = table()
    one, same, other = (grown(X, y, Growth(5, 0.1, 31, tried=0.6), seed=seed)(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert np.mean(one != other) > 0.5


def test_each_tree_sees_some_columns_half_of_them_the_first():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 12))
    y = X.sum(axis=1)
    forest = grown(X, y, Growth(60, 0.1, 31, seen=6))
    seen = [set(forest.column[begin:end]) - {-1} for begin, end in _trees(forest)]
    assert max(map(len, seen)) == 6
    later = [of - {0, 1, 2} for of in seen]
    assert max(map(len, later)) == 3
    assert set.union(*later) == set(range(3, 12))  # drawn anew for each tree
    in_first = np.mean([k in of for of in seen for k in range(3)])
    assert in_first > 0.9
    np.testing.assert_array_equal(grown(X, y, Growth(9, 0.1, 31, seen=12))(X), grown(X, y, Growth(9, 0.1, 31))(X))


def test_constant_targets_and_columns():
    X, y = table()
    X[:, 3] = 7.0
    assert set(grown(X, y, Growth(99, 0.3, 31)).column) == {-1, 0, 1, 2, 4}
    alone = grown(X, np.full(4000, 2.5), Growth(5, 0.1, 31))
    np.testing.assert_array_equal(alone(X[:10]), 2.5)


def test_units_of_y_change_nothing():
    X, y = table()
    small, large = (grown(X, scale * y, Growth(20, 0.1, 31))(X) / scale for scale in (1e-9, 1e9))
    np.testing.assert_allclose(small, large, atol=1e-4)


def test_gains_are_what_splits_took_off():
    X, y = table()
    found = Binned.of(X).grow(y, np.arange(4000), Growth(1, 1.0, 31), seed=0)
    left = np.sum((y - found.forest(X)) ** 2)
    assert found.gains.sum() == pytest.approx(np.sum((y - y.mean()) ** 2) - left, rel=1e-4)
    assert found.gains[:3].min() > 10 * found.gains[3:].max()


def test_the_mean_of_two():
    X, y = table()
    forests = [grown(X, y, Growth(n, 0.1, 31)) for n in (5, 9)]
    mean = np.mean([forest(X) for forest in forests], axis=0)
    np.testing.assert_allclose(Forest.mean_of(forests)(X), mean, rtol=1e-12, atol=1e-12)


def test_each_row_is_answered_by_itself():
    X, y = table(5000)
    forest = grown(X, y, Growth(9, 0.1, 31))  # more than one block
    alone = np.concatenate([forest(X[i : i + 1]) for i in range(0, 5000, 617)])
    np.testing.assert_array_equal(forest(X, n_jobs=2)[::617], alone)


def test_rows_of_a_threshold_go_left():
    column, left = (np.array(of, np.int32) for of in ([1, -1, -1], [1, -1, -1]))
    stump = Forest(1.0, np.zeros(1, np.int32), column, np.array([0.5, 10.0, 20.0]), left)
    np.testing.assert_array_equal(stump(np.array([[9.0, 0.5], [9.0, 0.6], [-9.0, -1.0]])), [11.0, 21.0, 11.0])
