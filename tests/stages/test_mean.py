"""Mean functions: the line that is taken out of y first."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV
from sklearn.preprocessing import StandardScaler

from gpnn.stages.mean import Linear


def noisy(n, d, noise, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.geomspace(1, 100, d) + 7
    slopes = rng.normal(size=d) / np.geomspace(1, 100, d) / np.sqrt(d)
    return X, 3 + (X - 7) @ slopes + noise * rng.normal(size=n), 3 + (X - 7) @ slopes


def test_least_squares_where_nothing_is_gained_by_less():
    X, y, _ = noisy(500, 5, 1e-6)
    np.testing.assert_allclose(Linear().fit(X, y).predict(X), LinearRegression().fit(X, y).predict(X), atol=1e-6)


@pytest.mark.parametrize(("n", "d", "noise"), [(300, 20, 2.0), (200, 150, 0.5), (100, 300, 0.3)])
def test_ridge_by_generalised_cross_validation(n, d, noise):
    """Beside every ridge of a fine grid, each fitted by scikit-learn: the best for rows that it has not seen is hardly
    better."""
    X, y, _ = noisy(n, d, noise)
    rng = np.random.default_rng(1)
    new = rng.normal(size=(2000, d)) * np.geomspace(1, 100, d) + 7
    truth = new @ np.linalg.lstsq(np.c_[X, np.ones(n)], noisy(n, d, 0.0)[2], rcond=None)[0][:d] if n > d else None
    scaler = StandardScaler().fit(X)
    Z, ridges = scaler.transform(X), np.geomspace(1e-6, 10 * n, 50)
    found = Linear().fit(X, y)
    fits = [Ridge(alpha=ridge).fit(Z, y) for ridge in ridges]
    closest = min(np.abs(fit.predict(Z) - found.predict(X)).max() for fit in fits)
    assert closest < 1e-6  # it is one of them,
    by_rows = RidgeCV(ridges).fit(Z, y)  # and much as cross-validation row by row would have it
    assert np.std(found.predict(X) - by_rows.predict(Z)) < 0.15 * np.std(y)
    if truth is not None:
        best = min(np.std(fit.predict(scaler.transform(new)) - truth) for fit in fits)
        assert np.std(found.predict(new) - truth) < 1.3 * best


def test_columns_that_say_nothing_or_the_same_do_no_harm():
    X, y, _ = noisy(300, 4, 0.1)
    X = np.c_[X, X[:, 0], np.full(300, 5.0)]
    found = Linear().fit(X, y)
    assert found.weights[5] == 0
    np.testing.assert_allclose(found.predict(X), Linear().fit(X[:, :4], y).predict(X[:, :4]), atol=1e-2)


def test_a_constant():
    X = noisy(50, 3, 0.0)[0]
    np.testing.assert_allclose(Linear().fit(X, np.full(50, 2.0)).predict(X), 2.0)


def test_a_row_of_weight_three_is_three_rows():
    X, y, _ = noisy(200, 6, 1.0)
    weights = np.random.default_rng(0).integers(1, 4, size=200)
    one, other = Linear().fit(X, y, weights), Linear().fit(X.repeat(weights, axis=0), y.repeat(weights))
    np.testing.assert_allclose(one.weights, other.weights)
    assert one.value == pytest.approx(other.value)


def test_each_row_by_itself():
    X, y, _ = noisy(400, 13, 0.5)
    found = Linear().fit(X, y)
    np.testing.assert_array_equal(found.predict(X)[17:19], found.predict(X[17:19]))
