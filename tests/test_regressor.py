import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpnn import GPnnRegressor, GPnnWarning, Hyperparameters, InvalidInputError, Prediction
from gpnn.engines.cpu import CPU
from gpnn.neighbors import IVF

QUICK = {
    "n_neighbors": 50,
    "block_size": 100,
    "n_blocks": 3,
    "optimizer": "lbfgs",
    "calibration_size": 300,
    "random_state": 0,
}
"""For the paper's recipe on few rows; what the default adds to it is tested in test_learned_metric.py."""


NOT_FOR_US = {
    "check_sample_weight_equivalence_on_dense_data": "laws are the same for the same parameters (test_noise.py), which "
    "differ as other rows are held out, and copies predict each other"
}


@parametrize_with_checks(
    [GPnnRegressor(random_state=0), GPnnRegressor.paper(n_neighbors=30, random_state=0)],
    expected_failed_checks=lambda _: NOT_FOR_US,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_estimator_checks(estimator, check, few_steps):
    check(estimator)


@pytest.fixture(scope="module")
def fitted(wavy):
    X, y = wavy
    return GPnnRegressor.paper(**QUICK).fit(X[:2000], y[:2000])


def test_predicts_with_calibrated_uncertainty(fitted, wavy):
    X, y = wavy
    scores = fitted.evaluate(X[2000:], y[2000:])
    assert scores["rmse"] < 0.25
    assert 0.7 < scores["calibration"] < 1.4
    assert 0.85 < scores["coverage_90"] < 0.96
    assert fitted.score(X[2000:], y[2000:]) > 0.93
    in_units = fitted.evaluate(X[2000:], y[2000:], units="y")
    assert in_units["rmse"] == pytest.approx(scores["rmse"] * y[:2000].std())
    assert in_units["calibration"] == pytest.approx(scores["calibration"])
    with pytest.raises(InvalidInputError, match="units"):
        fitted.evaluate(X[2000:], y[2000:], units="raw")


def test_the_ways_to_predict_agree(fitted, wavy):
    X = wavy[0][2000:2100]
    law = fitted.predict_distribution(X)
    assert isinstance(law, Prediction)
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, fitted.predict(X))
    np.testing.assert_array_equal(mean, law.mean)
    np.testing.assert_array_equal(std, law.std)


@pytest.mark.parametrize("kernel", ["rbf", "exponential", "matern32", "matern52"])
@pytest.mark.parametrize("whitening", ["full", "diagonal", "ranks", "none"])
def test_fast_and_reference_engines_agree_end_to_end(wavy, kernel, whitening):
    X, y = wavy
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    fast = GPnnRegressor.paper(kernel=kernel, whitening=whitening, **QUICK).fit(X[:1000], y[:1000])
    slow = clone(fast).set_params(engine="reference").fit(X[:1000], y[:1000])
    a, b = (model.predict_distribution(X[2000:2050]) for model in (fast, slow))
    assert (np.abs(a.mean - b.mean) / b.std).max() < 1e-3
    np.testing.assert_allclose(a.variance, b.variance, rtol=1e-3)


def test_same_seed_same_numbers_whatever_the_threads_and_batches(wavy):
    X, y = wavy
    first = GPnnRegressor.paper(**QUICK).fit(X[:2000], y[:2000]).predict(X[2000:], return_std=True)
    for n_jobs, batch_size in ((1, None), (2, 1), (3, 7), (1, 1000)):
        model = GPnnRegressor.paper(n_jobs=n_jobs, batch_size=batch_size, **QUICK).fit(X[:2000], y[:2000])
        for ours, theirs in zip(first, model.predict(X[2000:], return_std=True), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("index", ["exact", "kdtree", "flat", "ivf", IVF(recall=1.0)])
def test_every_index_serves(fitted, wavy, index):
    X, y = wavy
    model = GPnnRegressor.paper(index=index, **QUICK).fit(X[:2000], y[:2000])
    difference = model.predict(X[2000:]) - fitted.predict(X[2000:])
    assert np.abs(difference).mean() < 0.01 * y.std()
    assert model.fit_report_["recall"] > 0.97


def test_an_index_of_ones_own(wavy):
    from gpnn.common.types import Neighbors

    class First:
        """Always the first rows: enough to see that the protocol is all that is asked for."""

        exact = True

        def build(self, rows, n_neighbors, probes, n_jobs=None, random_state=0, progress=None):
            built = First()
            built.rows, built.order = rows.copy(), np.arange(len(rows))
            return built

        def query(self, X, n_neighbors):
            indices = np.broadcast_to(np.arange(n_neighbors), (len(X), n_neighbors))
            return Neighbors(indices, np.zeros(indices.shape))

        def points(self, indices):
            return self.rows[indices]

    X, y = wavy
    model = GPnnRegressor.paper(index=First(), **QUICK).fit(X[:500], y[:500])
    np.testing.assert_array_equal(model.index_.query(X[:1], 50).indices[0], np.arange(50))
    assert np.isfinite(model.predict(X[:5])).all()


def test_kneighbors_gives_the_rows_of_fit(fitted, wavy):
    X = wavy[0]
    found = fitted.kneighbors(X[2000:2020])
    assert found.indices.shape == (20, 50)
    assert not np.isin(found.indices, fitted.calibration_rows_).any()
    Z, queries = fitted.whitener_.transform(X[:2000]), fitted.whitener_.transform(X[2000:2020])
    distances = np.linalg.norm(Z[found.indices] - queries[:, None], axis=2)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-4, atol=1e-6)
    allowed = np.setdiff1d(np.arange(2000), fitted.calibration_rows_)
    nearest = np.sort(np.linalg.norm(Z[None, allowed] - queries[:, None], axis=2), axis=1)[:, :50]
    np.testing.assert_allclose(found.distances, nearest, rtol=1e-4, atol=1e-6)


def test_calibration_rows_are_calibrated_and_used_for_nothing_else(fitted, wavy):
    X, y = wavy
    rows = fitted.calibration_rows_
    assert len(rows) == 300
    assert fitted.evaluate(X[rows], y[rows])["calibration"] == pytest.approx(1, abs=1e-6)
    holdout = clone(fitted)._hold_out(X[:2000], y[:2000], CPU(1), np.random.default_rng(5))
    assert not np.isin(holdout.learn, holdout.judge).any()
    np.testing.assert_array_equal(holdout.hidden, np.sort(holdout.judge))


def test_without_calibration(wavy):
    X, y = wavy
    model = GPnnRegressor.paper(**QUICK | {"calibration_size": 0}).fit(X[:1000], y[:1000])
    assert model.alpha_ == 1
    assert len(model.calibration_rows_) == 0
    assert len(np.unique(model.kneighbors(X[:1000]).indices)) == 1000


def test_given_params_skip_phase_1(wavy):
    X, y = wavy
    params = Hyperparameters(1.0, 1.0, 0.1)
    model = GPnnRegressor.paper(params=params, **QUICK).fit(X[:1000], y[:1000])
    assert "likelihood_evaluations" not in model.fit_report_
    assert model.params_ == params.scaled(model.alpha_)


def test_gamma_scales_the_mean_in_whitened_units(wavy):
    X, y = wavy
    params = Hyperparameters(1.0, 1.0, 0.5)
    plain, scaled = (
        GPnnRegressor.paper(params=params, unbiased_mean=on, **QUICK | {"calibration_size": 0}).fit(X[:1000], y[:1000])
        for on in (False, True)
    )
    level = y[:1000].mean()
    gamma = (0.5 + 50 * 1.0) / (50 * 1.0)
    np.testing.assert_allclose(scaled.predict(X[2000:]) - level, gamma * (plain.predict(X[2000:]) - level), rtol=1e-10)
    np.testing.assert_array_equal(scaled.predict_distribution(X[2000:]).variance,
                                  plain.predict_distribution(X[2000:]).variance)  # fmt: skip


def test_report(fitted):
    report = fitted.fit_report_
    assert set(report["seconds"]) == {
        "columns",
        "target scale",
        "mean",
        "hold out",
        "learn",
        "index",
        "calibrate",
        "far",
        "trees",
    }
    assert report["n"] == 2000
    assert report["jitter"] == 0
    assert report["index"] == "KDTree"


# --- in company -------------------------------------------------------------------------------------------------------


def test_pipeline_grid_search_and_cross_validation(wavy):
    X, y = (part[:800] for part in wavy)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), GPnnRegressor.paper(**QUICK)),
        {"gpnnregressor__kernel": ["rbf", "exponential"], "gpnnregressor__n_neighbors": [20, 40]},
        cv=2,
    ).fit(X, y)
    assert search.best_score_ > 0.8
    assert cross_val_predict(GPnnRegressor.paper(**QUICK), X, y, cv=2).shape == (800,)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames(wavy, frame):
    X, y = wavy
    columns = ["east", "north", "height"]
    table = frame({name: X[:, k] for k, name in enumerate(columns)})
    model = GPnnRegressor.paper(**QUICK).fit(table[:1000], y[:1000])
    assert list(model.feature_names_in_) == columns
    plain = GPnnRegressor.paper(**QUICK).fit(X[:1000], y[:1000])
    np.testing.assert_array_equal(model.predict(table[2000:2010]), plain.predict(X[2000:2010]))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[["north", "east", "height"]][:10])


def test_pickles(fitted, wavy):
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict(wavy[0][2000:]), fitted.predict(wavy[0][2000:]))


def test_float32_and_float64_tables(wavy):
    X, y = wavy
    X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
    single = GPnnRegressor.paper(**QUICK).fit(X[:1000], y[:1000]).predict(X[2000:])
    double = GPnnRegressor.paper(**QUICK).fit(X[:1000].astype(float), y[:1000]).predict(X[2000:].astype(float))
    np.testing.assert_allclose(single, double, rtol=1e-3)


# --- bad input --------------------------------------------------------------------------------------------------------


def bad(X, y, **settings):
    with pytest.raises(InvalidInputError) as caught:
        GPnnRegressor.paper(**QUICK | settings).fit(X, y)
    return str(caught.value)


def test_missing_and_infinite_values_are_counted_and_located(wavy):
    X, y = (part[:200].copy() for part in wavy)
    X[3, 1] = X[7, 1] = np.nan
    assert "NaN in 2 of 200 rows, in 1 columns: column 1" in bad(X, y)
    X[5, 2] = np.inf
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    assert "NaN and inf in 3 of 200 rows, in 2 columns: b, c" in bad(table, y)
    y[0] = np.nan
    assert "NaN in 1 rows" in bad(np.nan_to_num(X), y)


def test_missing_values_at_predict_time(fitted, wavy):
    X = wavy[0][:5].copy()
    X[0, 0] = np.nan
    with pytest.raises(InvalidInputError, match="NaN in 1 of 5 rows"):
        fitted.predict(X)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_text_columns_are_named(wavy, frame):
    X, y = wavy
    table = frame({"height": X[:50, 0], "town": ["x"] * 50, "street": ["y"] * 50})
    assert "2 columns hold text or dates, not numbers: town, street" in bad(table, y[:50])
    objects = pd.DataFrame({"height": X[:50, 0], "town": pd.Series(["x"] * 50, dtype=object)})
    assert "1 columns hold text or dates, not numbers: town" in bad(objects, y[:50])


@pytest.mark.parametrize("as_given", [np.asarray, np.ndarray.tolist])
def test_text_columns_of_arrays_are_numbered(wavy, as_given):
    X, y = wavy
    table = X[:50].astype(object)
    table[7, 1] = "x"
    assert "1 columns hold text or dates, not numbers: column 1. gpnn.TableModel" in bad(as_given(table), y[:50])
    table[7, 1] = "0.5"  # a number, if in quotes
    GPnnRegressor.paper(n_neighbors=5).fit(as_given(table), y[:50])


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"n_neighbors": 2.5}, "n_neighbors"),
        ({"calibration_size": -1}, "calibration_size"),
        ({"block_size": 1}, "block_size"),
        ({"batch_size": 0}, "batch_size"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"n_jobs": "2"}, "n_jobs"),
        ({"params": (1, 1, 0.1)}, "params"),
        ({"params": Hyperparameters(np.ones(2), 1.0, 0.1)}, "2 lengthscales"),
        ({"params": Hyperparameters(1.0, 1.0, 0.1), "calibration_size": 0, "kernel": "gauss"}, "kernel"),
        ({"kernel": "gauss"}, "kernel"),
        ({"whitening": "pca"}, "whitening"),
        ({"optimizer": "sgd"}, "optimizer"),
        ({"index": "hnsw"}, "index"),
        ({"engine": "tpu"}, "engine"),
    ],
)
def test_settings(wavy, settings, word):
    assert word in bad(wavy[0][:200], wavy[1][:200], **settings)


def test_targets(wavy):
    X, y = (part[:200] for part in wavy)
    assert "constant" in bad(X, np.full(200, 3.0))
    assert "overflow" in bad(X, y * 1e200)
    assert "underflow" in bad(X, y * 1e-200)
    with pytest.raises(ValueError, match="dim 3"):
        GPnnRegressor.paper(**QUICK).fit(X, y[None].repeat(200, axis=0)[:, :, None])
    with pytest.raises(ValueError, match="inconsistent"):
        GPnnRegressor.paper(**QUICK).fit(X, y[:100])


def test_a_failed_fit_leaves_nothing_half_done(wavy):
    X, y = (part[:500] for part in wavy)
    model = GPnnRegressor.paper(**QUICK).fit(X, y)
    with pytest.raises(InvalidInputError):
        model.set_params(engine="tpu").fit(X, y)
    with pytest.raises(NotFittedError):
        model.set_params(engine="cpu").predict(X)


def test_hyperparameters_must_make_sense():
    for values in ((0.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 1.0, -1e-9), (np.nan, 1.0, 1.0)):
        with pytest.raises(InvalidInputError, match="Hyperparameters"):
            Hyperparameters(*values)


def test_empty_one_row_and_few_rows(wavy):
    X, y = wavy
    with pytest.raises(ValueError, match="0 sample"):
        GPnnRegressor.paper(**QUICK).fit(X[:0], y[:0])
    with pytest.raises(ValueError, match="minimum of 2"):
        GPnnRegressor.paper(**QUICK).fit(X[:1], y[:1])
    for n in (2, 3, 5, 20, 100):
        with pytest.warns(GPnnWarning, match="n_neighbors 400 →"):
            model = GPnnRegressor.paper(random_state=0).fit(X[:n], y[:n])
        mean, std = model.predict(X, return_std=True)
        assert np.isfinite(mean).all()
        assert (std > 0).all()


def test_no_queries(fitted):
    mean, std = fitted.predict(np.empty((0, 3)), return_std=True)
    assert mean.shape == std.shape == (0,)


def test_wrong_number_of_columns(fitted, wavy):
    with pytest.raises(ValueError, match="2 features"):
        fitted.predict(wavy[0][:, :2])


def test_useless_columns_warn_and_work(wavy, fitted):
    X, y = wavy
    padded = np.column_stack([X, np.full(len(X), 3.0), X[:, 0]])
    with pytest.warns(GPnnWarning) as caught:
        model = GPnnRegressor.paper(**QUICK).fit(padded[:2000], y[:2000])
    assert {"constant" in str(w.message) for w in caught} == {True, False}
    assert model.evaluate(padded[2000:], y[2000:])["rmse"] < 0.3


def test_every_row_identical(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GPnnRegressor.paper(**QUICK).fit(np.ones((500, 3)), 5 + rng.normal(size=500))
    mean, std = model.predict(np.ones((4, 3)), return_std=True)
    np.testing.assert_allclose(mean, 5, atol=0.5)
    np.testing.assert_allclose(std, 1, atol=0.3)


def test_repeated_rows_with_conflicting_targets(rng):
    X = np.repeat(rng.normal(size=(40, 2)), 50, axis=0)
    y = X[:, 0] + rng.normal(size=2000)
    model = GPnnRegressor.paper(**QUICK).fit(X, y)
    scores = model.evaluate(X, X[:, 0] + rng.normal(size=2000), units="y")
    assert scores["rmse"] == pytest.approx(1, abs=0.15)
    assert scores["calibration"] == pytest.approx(1, abs=0.25)


def test_repeated_rows_without_noise(rng):
    X = np.repeat(rng.normal(size=(500, 2)), 4, axis=0)
    y = np.sin(X[:, 0])
    model = GPnnRegressor.paper(params=Hyperparameters(1.0, 1.0, 0.0), kernel="rbf", **QUICK).fit(X, y)
    with pytest.warns(GPnnWarning, match="diagonal"):
        mean, std = model.predict(X[::40] + 0.01, return_std=True)
    assert np.isfinite(mean).all()
    assert (std >= 0).all()


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_extreme_units(wavy, factor, fitted):
    X, y = wavy
    model = GPnnRegressor.paper(**QUICK).fit(X[:2000] * factor, y[:2000] * factor)
    np.testing.assert_allclose(model.predict(X[2000:] * factor) / factor, fitted.predict(X[2000:]), rtol=1e-2)


def test_far_outside_the_data_the_prior_returns(fitted, wavy):
    y = wavy[1][:2000]
    mean, std = fitted.predict(np.full((1, 3), 1e25), return_std=True)
    assert mean[0] == pytest.approx(y.mean(), rel=1e-3)
    assert std[0] > 0.5 * y.std()


def test_an_interrupted_or_failing_predict_raises_and_leaves_the_model_usable(fitted, wavy, monkeypatch):
    X = wavy[0][2000:]
    before = fitted.predict(X)
    calls = []

    def interrupt(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*args)

    original = fitted.index_.query
    monkeypatch.setattr(fitted.index_, "query", interrupt, raising=False)
    with pytest.raises(KeyboardInterrupt):
        fitted.predict(X)
    monkeypatch.undo()
    np.testing.assert_array_equal(fitted.predict(X), before)


def test_a_predictor_is_predict_for_hot_loops(wavy):
    X, y = wavy
    model = GPnnRegressor.paper(**QUICK).fit(X[:1000], y[:1000])
    predict = model.predictor()
    mean, std = model.predict(X[2000:2010], return_std=True)
    for rows in (slice(0, 10), slice(3, 4)):
        ours = predict(X[2000:2010][rows])
        np.testing.assert_array_equal(ours, (mean[rows], std[rows]))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda row: predict(row[None])[0][0], X[2000:2010]))
    np.testing.assert_array_equal(found, mean)
    model.fit(X[:500], -y[:500])  # what was handed out goes on with the fit it came from
    np.testing.assert_array_equal(predict(X[2000:2010]), (mean, std))
    with pytest.raises(ValueError, match="3 features"):
        predict(X[:2, :2])
    with pytest.raises(InvalidInputError, match="NaN in 1 of 2 rows"):
        predict([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0]])
    with pytest.raises(NotFittedError):
        GPnnRegressor().predictor()
