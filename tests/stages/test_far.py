"""Queries unlike random rows: beyond the support, of new groups, after the training rows."""

import numpy as np
import pytest

from gpnn import GPnnRegressor, GPnnWarning
from gpnn.stages.far import OUTSIDE, Trend


def trending(n=900, seed=0):
    """A trend in the first column, which the others know nothing of."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    return X, 2 * X[:, 0] + np.sin(3 * X[:, 1]) + 0.1 * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = trending()
    low = X[:, 0] < 0.4
    return GPnnRegressor(random_state=0).fit(X[low], y[low]), X[~low], y[~low]


def test_random_queries_are_answered_as_without_it(fitted):
    model, _, _ = fitted
    X, _ = trending(seed=1)
    inside = X[X[:, 0] < 0.3]
    law = model.predict_distribution(inside)
    alone = GPnnRegressor(far=False, random_state=0)
    X_train, y_train = trending()
    low = X_train[:, 0] < 0.4
    other = alone.fit(X_train[low], y_train[low]).predict_distribution(inside)
    assert other.support is None
    same = law.support >= OUTSIDE
    assert same.mean() > 0.9
    np.testing.assert_array_equal(law.mean[same], other.mean[same])
    np.testing.assert_array_equal(law.variance[same], other.variance[same])


def test_beyond_the_support_intervals_hold(fitted):
    model, X, y = fitted
    with pytest.warns(GPnnWarning, match="outside the support"):
        law = model.predict_distribution(X)
    beyond = law.support < OUTSIDE
    assert beyond.mean() > 0.3
    lower, upper = model.predict_interval(X)
    assert np.mean((lower <= y) & (y <= upper)) > 0.7


def test_support_falls_with_distance(fitted):
    model, _, _ = fitted
    away = np.linspace(0, 5, 20)
    support = model.predict_distribution(np.c_[away, 0 * away, 0 * away]).support
    assert support[0] > 0.05
    assert (support[away > 1.5] == 0).all()


def test_the_end_of_the_world_is_answered_soberly(fitted):
    model, _, y = fitted
    law = model.predict_distribution(np.array([[1e300, 0, 0], [-1e9, 1e9, 0]]))
    assert np.isfinite(law.mean).all()
    assert np.isfinite(law.variance).all()
    assert (np.abs(law.mean) < 10 * np.abs(y).max()).all()


def test_a_model_file_keeps_it(fitted, tmp_path):
    model, X, _ = fitted
    model.save(tmp_path / "m.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "m.gpnn").predict_distribution(X)
    law = model.predict_distribution(X)
    for name in ("mean", "variance", "support"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(law, name))


def test_one_row_is_answered_as_in_company(fitted):
    model, X, _ = fitted
    together = model.predict_distribution(X[:20])
    alone = [model.predict_distribution(X[k : k + 1]) for k in range(20)]
    np.testing.assert_array_equal(together.mean, [law.mean[0] for law in alone])
    np.testing.assert_array_equal(together.variance, [law.variance[0] for law in alone])


def test_intervals_of_new_groups_hold_if_groups_are_said():
    """Each group has an offset of its own, and columns by which it is recognised: what is learned from its own rows
    says nothing of new ones."""
    rng = np.random.default_rng(5)
    group = rng.integers(60, size=1500)
    marks, offsets = rng.normal(size=(60, 2)), rng.normal(size=60)
    X = np.c_[marks[group], rng.normal(size=1500)]
    y = offsets[group] + 0.5 * X[:, 2] + 0.05 * rng.normal(size=1500)
    new = group >= 45
    model = GPnnRegressor(random_state=0).fit(X[~new], y[~new], groups=group[~new])
    lower, upper = model.predict_interval(X[new])
    assert np.mean((lower <= y[new]) & (y[new] <= upper)) > 0.85
    assert np.mean(upper - lower) < 1.5 * 2 * 1.645  # offsets have the variance 1, and nothing tells of a new one's


def test_a_trend_ends_where_its_rows_do():
    rng = np.random.default_rng(0)
    Z = rng.uniform(-1, 1, size=(500, 2))
    trend = Trend.fit(Z, 3 * Z[:, 0] - Z[:, 1] + 7)
    np.testing.assert_allclose(trend(Z), 3 * Z[:, 0] - Z[:, 1] + 7, atol=0.1)
    np.testing.assert_allclose(trend(np.array([[50.0, 0.0]])), trend(np.array([[Z[:, 0].max(), 0.0]])))
    assert (Trend.none(2)(Z) == 0).all()


def test_a_slipped_decimal_does_not_stretch_a_trend():
    """Nor do two columns at their ends together take it beyond all of y."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(2000, 2)) @ [[1, 0.95], [0, 0.1]]
    Z[0, 0] *= 100
    y = Z[:, 1] + 0.1 * rng.normal(size=2000)
    trend = Trend.fit(Z, y)
    assert trend.high[0] < 4
    assert trend(np.array([[1e3, 1e3]])) <= y.max()
    assert trend(np.array([[-1e3, -1e3]])) >= y.min()


def test_what_is_asked_of_it_decides():
    X, y = trending(300)
    assert GPnnRegressor.paper(n_neighbors=20, calibration_size=50).fit(X, y)._far is None
    assert GPnnRegressor(holdout="patches", random_state=0).fit(X, y)._far is None
    with pytest.raises(ValueError, match="far = 'yes'"):
        GPnnRegressor(far="yes").fit(X, y)
