"""Wide tables: columns that matter are found, whatever else there is, and a model speaks of all of them."""

import copy

import numpy as np
import pytest
from tests.conftest import shorten

from gpnn import GPnnRegressor
from gpnn.engines import make_engine
from gpnn.serve.training import Training
from gpnn.stages.forest import Binned
from gpnn.stages.screening import WIDE, _binned, _next, _strongest, columns_that_matter
from gpnn.stages.trees import gains_of_columns

FIXED: dict = {
    "kernel": "matern32", "whitening": "diagonal", "n_neighbors": 32, "random_state": 0, "n_jobs": 1,
    "target_scale": "identity", "far": False,
}  # fmt: skip
TRUE = [3, 17, 40, 68]


def table(n=1000, d=140, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    a, b, c, e = (X[:, k] for k in TRUE)
    return X, np.sin(2 * a) + b * c + 0.5 * e + 0.1 * rng.normal(size=n)


@pytest.fixture(scope="module")
def wide():
    X, y = table()
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        return X, y, GPnnRegressor(**FIXED).fit(X[:800], y[:800])


@pytest.fixture(autouse=True)
def quick(few_steps):
    """Of the fits themselves."""


def test_trends_and_products_come_first():
    X, y = table()
    X[:, 5], X[:, 6] = 1.0, X[:, 3]  # one that says nothing, and one that says the same again
    bins = _binned(X)
    first = _strongest(bins, y, np.zeros(0, np.int64), 6)
    assert set(TRUE) <= set(first)
    assert 5 not in _strongest(bins, y, first, 200)
    assert 6 not in _strongest(bins, y, first, 200)
    assert (bins[5] == -1).all()
    assert (bins[6] == -1).all()


def test_trees_see_what_columns_say_together(rng):
    X = rng.normal(size=(3000, 140))
    X[:, 20] = X[:, 20] > 1
    y = np.where(X[:, 20] > 0, np.sin(2 * X[:, 30]), 0) + 0.05 * rng.normal(size=3000)
    gains = gains_of_columns(Binned.of(X), y)
    assert set(np.argsort(-gains)[:2]) == {20, 30}
    none = np.zeros(0, np.int64)
    found = _next(_binned(X), gains, y, none, 6)
    assert {20, 30} == set(found[:2])
    assert len(set(found)) == 6
    assert not set(found) & set(_next(_binned(X), gains, y, found, 6))


def test_all_columns_are_kept_where_few_say_hardly_anything(rng):
    """They may have it together, and a linear map will tell."""
    X = rng.normal(size=(2000, 70))
    together = np.sin(2 * X @ rng.normal(size=70) / np.sqrt(70)) + 0.1 * rng.normal(size=2000)
    engine = make_engine("cpu", 1, None)
    assert columns_that_matter(X, together, engine) is None
    found = columns_that_matter(X, np.sin(2 * X[:, 3]), engine)
    assert 3 in found
    assert (np.diff(found) > 0).all()


def test_up_to_so_many_columns_all_are_kept(rng):
    assert columns_that_matter(rng.normal(size=(500, WIDE)), rng.normal(size=500), make_engine("cpu", 1, None)) is None
    assert columns_that_matter(rng.normal(size=(300, 100)), rng.normal(size=300), make_engine("cpu", 1, None)) is None


def test_predictions_are_those_of_the_columns_that_count(wide):
    X, y, model = wide
    assert set(TRUE) <= set(model.columns_)
    assert len(model.columns_) == model.fit_report_["columns"] < 140
    moved = X[800:].copy()
    others = np.setdiff1d(np.arange(140), model.columns_)
    moved[:, others] += 100
    np.testing.assert_array_equal(model.predict(moved), model.predict(X[800:]))
    np.testing.assert_array_equal(model.predictor()(X[800:])[0], model.predict(X[800:]))
    assert model.evaluate(X[800:], y[800:])["rmse"] < 0.6
    assert model.sample_y(X[800:810], 2).shape == (10, 2)


def test_reasons_are_given_in_all_columns(wide):
    X, _, model = wide
    found = model.explain(X[800:805])
    assert found.columns.shape == (5, 140)
    np.testing.assert_allclose(found.columns.sum(axis=1), 1)
    np.testing.assert_allclose(found.mean(), model.predict(X[800:805]), atol=1e-3)
    relevance = model.relevance()
    assert relevance.share.shape == (140,)
    assert set(TRUE) == set(np.argsort(-relevance.share)[:4])
    assert model.kneighbors(X[800:802]).indices.shape == (2, 32)
    curve = model.partial_dependence(X[800:850], 68)
    assert curve.mean[-1] > curve.mean[0] + 0.5


def test_files_serving_and_diagnosis(wide, tmp_path):
    from gpnn.diagnostics import diagnose

    X, y, model = wide
    model.save(tmp_path / "model.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn")
    np.testing.assert_array_equal(loaded.predict(X[800:820]), model.predict(X[800:820]))
    training = Training(loaded)
    rows, targets = training.rows(np.array([0, 7]))
    np.testing.assert_allclose(rows[:, model.columns_], X[[0, 7]][:, model.columns_], atol=1e-4)
    np.testing.assert_allclose(targets, y[[0, 7]], atol=1e-5)
    np.testing.assert_allclose(training.spread.low, X[:800].min(axis=0), atol=1e-4)
    assert len(diagnose(model, X[800:], y[800:]).fit.columns) == 140


def test_rows_come_and_go(wide):
    X, y, fitted = wide
    model = copy.deepcopy(fitted)
    model.partial_fit(X[800:900], y[800:900]).forget(before=50)
    assert model.evaluate(X[900:], y[900:])["rmse"] < 0.6


def test_targets_share_columns_where_they_share_a_metric():
    X, y = table(600, 140)
    model = GPnnRegressor(shared_metric=True, **FIXED).fit(X[:550], np.stack([y, 2 * y + 1], axis=1)[:550])
    first, second = model.targets_
    np.testing.assert_array_equal(first.columns_, second.columns_)
    np.testing.assert_allclose(model.predict(X[550:])[:, 1], second.predict(X[550:]), rtol=1e-5)


def test_all_columns_if_asked_for():
    X, y = table(450, 70)
    assert GPnnRegressor(screen_columns=False, **FIXED).fit(X, y).columns_ is None
