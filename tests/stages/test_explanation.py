"""mean = offset + Σ weights·y[indices], everywhere; and what else is said of a prediction is true."""

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import permutation_importance
from sklearn.linear_model import Ridge

from gpnn import GPnnRegressor, Hyperparameters, InvalidInputError
from gpnn.common.kernels import KERNELS, squared_distances
from gpnn.engines.cpu.solver import local_weights

GIVEN = {
    "kernel": "matern32", "params": Hyperparameters(0.7, 1.0, 0.05), "n_neighbors": 40, "calibration_size": 0,
    "whitening": "diagonal", "random_state": 0, "n_jobs": 1,
}  # fmt: skip


def table(n=400, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * [1.0, 10.0, 0.1][:d]
    return X, 5 + np.sin(2 * X[:, 0]) + 0.2 * X[:, 1] + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_are_those_of_equation_6(kernel, rng):
    X_star, N = rng.normal(size=(4, 2)), rng.normal(size=(4, 21, 2))
    params, noise = Hyperparameters(1.3, 2.0, 0.1), rng.uniform(0.01, 1.0, size=(4, 21))
    found = local_weights(X_star, N, KERNELS[kernel], params, noise)
    for x, rows, own, weights in zip(X_star, N, noise, found, strict=True):
        K = 2.0 * KERNELS[kernel].correlation(squared_distances(rows / 1.3, rows / 1.3)) + np.diag(own)
        k_star = 2.0 * KERNELS[kernel].correlation(squared_distances(rows / 1.3, x[None] / 1.3))[:, 0]
        np.testing.assert_allclose(weights, np.linalg.solve(K, k_star), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("mean", ["constant", "zero", "linear", Ridge()], ids=str)
@pytest.mark.parametrize("unbiased_mean", [False, True])
def test_the_mean_is_what_the_rows_say(mean, unbiased_mean):
    X, y = table()
    model = GPnnRegressor(mean=mean, unbiased_mean=unbiased_mean, engine="reference", **GIVEN).fit(X, y)
    found = model.explain(X[:20] + 0.01)
    assert found.indices.shape == found.weights.shape == (20, 40)
    np.testing.assert_allclose(found.mean(y), model.predict(X[:20] + 0.01), rtol=1e-9)
    np.testing.assert_allclose(found.y, y[found.indices])
    np.testing.assert_array_equal(found.indices, model.kneighbors(X[:20] + 0.01).indices)
    assert model.set_params(engine="cpu").explain(X[:20]).mean(y) == pytest.approx(model.predict(X[:20]), rel=1e-4)
    assert ((found.effective >= 1) & (found.effective <= 40)).all()
    assert found.columns.shape == (20, 3)
    np.testing.assert_allclose(found.columns.sum(axis=1), 1)
    moved = y.copy()  # each weight is how far the mean moves when that row's y does
    moved[found.indices[0, 2]] += 1.0
    assert found.mean(moved)[0] - found.mean(y)[0] == pytest.approx(found.weights[0, 2])


@pytest.fixture(scope="module")
def with_gaps():
    """Rows with wrong targets among them, a trend, and queries within the support and far outside."""
    from tests.conftest import shorten

    X, y = table(2500, seed=1)
    y[[7, 1200]] = -9999.0
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        model = GPnnRegressor(kernel="matern32", whitening="diagonal", mean="linear", random_state=0, n_jobs=1)
        with pytest.warns(UserWarning, match="left out"):
            model.fit(X, y)
    queries = np.vstack([X[:30], X[:30] + np.array([4.0, 0.0, 0.0]), X[:30] + np.array([0.0, 90.0, 1.0])])
    return model, X, y, queries


@pytest.mark.filterwarnings("ignore:.*outside the support")
def test_beyond_the_support_too(with_gaps, tmp_path):
    model, _, y, queries = with_gaps
    model.set_params(engine="reference")
    found, law = model.explain(queries), model.predict_distribution(queries)
    model.set_params(engine="cpu")
    assert (law.support[30:] < 0.01).any()
    assert found.indices.shape[1] > model.n_neighbors_
    np.testing.assert_allclose(found.mean(y), law.mean, rtol=1e-5)  # trends are of float32 columns
    np.testing.assert_allclose(found.mean(), law.mean, rtol=1e-5)
    np.testing.assert_allclose(found.y[found.weights != 0], y[found.indices[found.weights != 0]], rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(found.support, law.support)
    lines = [line[weights != 0] for line, weights in zip(found.indices, found.weights, strict=True)]
    assert all(len(np.unique(line)) == len(line) for line in lines)
    assert not np.isin(np.concatenate(lines), [7, 1200]).any()  # left out: they decide nothing
    model.save(tmp_path / "model.gpnn")
    again = GPnnRegressor.load(tmp_path / "model.gpnn").explain(queries)
    np.testing.assert_allclose(again.mean(y), found.mean(y), rtol=1e-4)
    np.testing.assert_array_equal(again.indices, model.explain(queries).indices)


def test_the_rows_that_decided_come_first():
    X, y = table()
    model = GPnnRegressor(**GIVEN).fit(X, y)
    rows, weights = model.explain(X[:10]).decisive(5)
    assert rows.shape == weights.shape == (10, 5)
    np.testing.assert_array_equal(rows[:, 0], np.arange(10))  # each row says most of itself
    assert (np.diff(np.abs(weights), axis=1) <= 0).all()


def test_influence_is_a_column_of_the_weights():
    X, y = table()
    model = GPnnRegressor(**GIVEN).fit(X, y)
    found = model.influence([3, 17], X[:50])
    moved = y.copy()
    moved[17] += 100.0
    change = model.explain(X[:50]).mean(moved) - model.explain(X[:50]).mean(y)
    of_17 = found.rows == 17
    np.testing.assert_array_equal(np.sort(found.queries[of_17]), np.flatnonzero(change))
    np.testing.assert_allclose(100 * found.weights[of_17], change[found.queries[of_17]], rtol=1e-9)
    assert found.queries[of_17][0] == 17


def test_columns_that_matter_are_told_with_their_uncertainty():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(3000, 3)), columns=["strong", "weak", "nothing"])
    y = np.sin(2 * X["strong"]) + 0.3 * np.sin(X["weak"]) + 0.1 * rng.normal(size=3000)
    model = GPnnRegressor(kernel="matern52", whitening="diagonal", far=False, random_state=0, n_jobs=1).fit(X, y)
    found = model.relevance()
    assert found.names == ("strong", "weak", "nothing")
    assert found.share[0] > found.share[1] > found.share[2]
    assert found.share.sum() == pytest.approx(1)
    assert (found.lower <= found.share).all()
    assert (found.share <= found.upper).all()
    assert found.lower[0] > found.upper[1]
    importance = permutation_importance(model, X[:300], y[:300], n_repeats=2, random_state=0).importances_mean
    assert importance[0] > importance[1] > importance[2] - 0.01
    curve = model.partial_dependence(X[:200], "strong")
    truth = np.sin(2 * curve.grid) + 0.3 * np.sin(X["weak"][:200]).mean()
    assert np.abs(curve.mean - truth).max() < 0.1
    assert np.mean((curve.lower <= truth) & (truth <= curve.upper)) > 0.8
    assert (curve.upper - curve.lower).max() < 0.5
    np.testing.assert_allclose(model.partial_dependence(X[:200], 0, curve.grid).mean, curve.mean)


def test_columns_of_a_full_whitening(rng):
    X = rng.normal(size=(500, 2)) @ [[1.0, 0.9], [0.0, 0.3]]
    y = X[:, 0] + 0.1 * rng.normal(size=500)
    model = GPnnRegressor(**GIVEN | {"whitening": "full"}).fit(X, y)
    found = model.explain(X[:5])
    difference = X[found.indices[0]] - X[0]
    squared = ((difference @ model.whitener_.x_map) ** 2).sum(axis=1)
    by_column = difference * (difference @ model.whitener_.x_map @ model.whitener_.x_map.T)
    np.testing.assert_allclose(by_column.sum(axis=1), squared)
    expected = np.abs(found.weights[0]) @ by_column
    np.testing.assert_allclose(found.columns[0], expected / expected.sum(), atol=1e-3)


def test_what_cannot_be_explained():
    X, y = table()
    model = GPnnRegressor(**GIVEN).fit(X, y)
    with pytest.raises(InvalidInputError, match="numbers of training rows, 0 to 399"):
        model.influence([400], X[:2])
    with pytest.raises(InvalidInputError, match="numbers of training rows"):
        model.influence([0.5], X[:2])
    with pytest.raises(InvalidInputError, match="no column 'x'"):
        model.partial_dependence(X, "x")
    with pytest.raises(InvalidInputError, match="there are none"):
        model.partial_dependence(X[:0], 0)
    with pytest.raises(InvalidInputError, match="coverage"):
        model.partial_dependence(X, 0, coverage=90)
    assert model.explain(X[:0]).weights.shape == (0, 40)
    model._row_means, model.mean_ = None, Ridge().fit(X, y)  # as in a file of an earlier version
    with pytest.raises(InvalidInputError, match="Fit again"):
        model.explain(X)
