import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpnn import CalibratedRegressor, GPnnRegressor, GPnnWarning, Hyperparameters, InvalidInputError, baselines, metrics


class NGBoostLike(RegressorMixin, BaseEstimator):
    """A regressor whose law is an object with mean() and std()."""

    def fit(self, X, y):
        self.mean_, self.n_features_in_ = np.mean(y), X.shape[1]
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)

    def pred_dist(self, X):
        return stats.norm(self.predict(X), 0.1)


# The scaler makes numbers of tables that BayesianRidge itself takes in fit, but not in predict(return_std=True).
SCALED_RIDGE = make_pipeline(StandardScaler(), BayesianRidge())
GAUSSIAN = {"params": Hyperparameters(1.0, 1.0, 0.3), "random_state": 0}
BASES = [
    BayesianRidge(),
    SCALED_RIDGE,
    make_pipeline(StandardScaler(), GaussianProcessRegressor(RBF(2.0) + WhiteKernel(0.5), optimizer=None)),
    NGBoostLike(),
    GPnnRegressor(calibration_size=0, n_neighbors=20, **GAUSSIAN),
    baselines.PoE(expert_size=100, **GAUSSIAN),
    baselines.ConjugateNNGP(**GAUSSIAN),
]


@parametrize_with_checks([CalibratedRegressor(SCALED_RIDGE, random_state=0)])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
def test_means_stay_and_the_rows_held_out_are_calibrated(wavy, base):
    X, y = (part[:800] for part in wavy)
    model = CalibratedRegressor(base, calibration_size=150, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), model.estimator_.predict(X))
    rows = model.calibration_rows_
    assert len(rows) == 150
    assert metrics.calibration(y[rows], model.predict_distribution(X[rows])) == pytest.approx(1)
    assert model.evaluate(X, y)["rmse"] > 0


def test_the_estimator_never_sees_the_rows_held_out(wavy):
    X, y = (part[:400] for part in wavy)
    model = CalibratedRegressor(BayesianRidge(), calibration_size=100, random_state=0).fit(X, y)
    others = np.setdiff1d(np.arange(400), model.calibration_rows_)
    np.testing.assert_array_equal(model.predict(X), BayesianRidge().fit(X[others], y[others]).predict(X))


def test_a_frozen_estimator_is_calibrated_on_every_row(wavy):
    X, y = wavy
    base = GPnnRegressor(calibration_size=0, n_neighbors=20, **GAUSSIAN).fit(X[:500], y[:500])
    model = CalibratedRegressor(FrozenEstimator(base)).fit(X[500:700], y[500:700])
    assert len(model.calibration_rows_) == 200
    assert model.evaluate(X[500:700], y[500:700])["calibration"] == pytest.approx(1)
    np.testing.assert_array_equal(model.predict(X[700:]), base.predict(X[700:]))


def test_student_t_stays_student_t(wavy):
    X, y = (part[:400] for part in wavy)
    model = CalibratedRegressor(baselines.ConjugateNNGP(**GAUSSIAN), calibration_size=100).fit(X, y)
    assert model.predict_distribution(X).degrees_of_freedom == 2 * (2 + 300 / 2)
    assert "log_score" in model.evaluate(X, y)


def test_pipelines_searches_and_frames(wavy):
    X, y = (part[:400] for part in wavy)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), CalibratedRegressor(BayesianRidge(), calibration_size=50)),
        {"calibratedregressor__estimator__max_iter": [1, 300]},
        cv=2,
    ).fit(X, y)
    assert search.best_estimator_.predict(X, return_std=True)[1].shape == (400,)
    model = CalibratedRegressor(SCALED_RIDGE, calibration_size=50, random_state=0)
    assert cross_val_predict(model, X, y, cv=2).shape == (400,)
    for frame in (pd.DataFrame, pl.DataFrame):
        table = frame({name: X[:, k] for k, name in enumerate("abc")})
        model.fit(table, y)
        assert list(model.feature_names_in_) == list(model.estimator_.feature_names_in_) == ["a", "b", "c"]
        with pytest.raises(ValueError, match="feature names"):
            model.predict(table[["b", "a", "c"]])


def test_columns_that_only_the_estimator_understands(wavy):
    X, y = (part[:400] for part in wavy)
    table = pd.DataFrame({"height": X[:, 0], "town": np.where(X[:, 1] > -100, "here", "there")})
    encode = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    model = CalibratedRegressor(make_pipeline(encode, BayesianRidge()), calibration_size=50).fit(table, y)
    assert np.isfinite(model.predict(table, return_std=True)[1]).all()


def test_refusals(wavy):
    X, y = (part[:400] for part in wavy)
    for base in (KNeighborsRegressor(), make_pipeline(StandardScaler(), KNeighborsRegressor())):
        model = CalibratedRegressor(base, calibration_size=50)
        with pytest.raises(InvalidInputError, match="does not give standard deviations"):
            model.fit(X, y)
        with pytest.raises(NotFittedError):
            model.predict(X)
    with pytest.raises(InvalidInputError, match="calibration_size"):
        CalibratedRegressor(BayesianRidge(), calibration_size=-1).fit(X, y)
    with pytest.raises(InvalidInputError, match="NaN in 1 rows"):
        CalibratedRegressor(BayesianRidge()).fit(X, np.append(y[1:], np.nan))
    with pytest.warns(GPnnWarning, match="1000 → 100"):
        CalibratedRegressor(BayesianRidge()).fit(X, y)


def test_around_a_model_on_another_scale(rng):
    X = rng.uniform(-2, 2, size=(700, 2))
    y = np.exp(X[:, 0] + 0.5 * rng.normal(size=700))
    inner = GPnnRegressor(target_scale="log", kernel="matern32", whitening="diagonal", refine=False, n_jobs=1)
    model = CalibratedRegressor(inner, random_state=0).fit(X[:600], y[:600])
    law = model.predict_distribution(X[600:])
    assert law.inner is None
    np.testing.assert_allclose(law.mean, model.estimator_.predict(X[600:]))
