"""Noise that is known, and weights: the laws are those of an exact process with that diagonal."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpnn import GPnnRegressor, Hyperparameters, InvalidInputError, Prediction, metrics
from gpnn.common.kernels import KERNELS, squared_distances
from gpnn.stages.calibration import factor_beside, fit_calibration

PARAMS = Hyperparameters(0.6, 0.9, 0.05)
GIVEN = {
    "params": PARAMS, "whitening": "none", "mean": "zero", "calibration_size": 0, "random_state": 0, "n_jobs": 1,
    "suspects": "keep",
}  # fmt: skip


def table(n, seed=0, ratio=100.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    noise = 0.004 * ratio ** rng.uniform(size=n)
    f = np.sin(3 * X[:, 0]) + X[:, 1]
    return X, f + np.sqrt(noise) * rng.normal(size=n), noise, f


def made(engine):
    """The GPU's kernels are interpreted where there is none."""
    if engine != "gpu":
        return engine
    pytest.importorskip("triton")
    from gpnn.engines.gpu import GPU

    return GPU("cuda" if Path("/dev/nvidia0").exists() else "cpu")


def exact(kernel, X, y, noise, X_star, y_std):
    """Means and variances of f*, in the units of y."""
    scale = y_std**2
    C = KERNELS[kernel].correlation(squared_distances(X / 0.6, X / 0.6))
    k_star = scale * 0.9 * KERNELS[kernel].correlation(squared_distances(X_star / 0.6, X / 0.6))
    K = scale * 0.9 * C + np.diag(noise)
    return k_star @ np.linalg.solve(K, y), scale * 0.9 - np.sum(k_star.T * np.linalg.solve(K, k_star.T), axis=0)


@pytest.mark.parametrize("engine", ["cpu", "reference", "gpu"])
@pytest.mark.parametrize("kernel", ["exponential", "matern52"])
def test_an_exact_process_with_that_diagonal(kernel, engine):
    n = 20 if engine == "gpu" else 90  # interpreted kernels are slow
    engine = made(engine)
    X, y, noise, _ = table(n)
    X_star = X[:5] + 0.03
    model = GPnnRegressor(kernel=kernel, n_neighbors=n, engine=engine, **GIVEN).fit(X, y, noise_variance=noise)
    own = 0.05 * y.std() ** 2
    mean, variance = exact(kernel, X, y, noise + own, X_star, y.std())
    new = np.array([0.0, 0.1, 0.2, 0.3, 10.0])
    law = model.predict_distribution(X_star, noise_variance=new)
    np.testing.assert_allclose(law.mean, mean, rtol=2e-3)
    np.testing.assert_allclose(law.variance, variance + own + new, rtol=1e-3)
    np.testing.assert_allclose(model.predict_distribution(X_star).variance, variance + own + noise.mean(), rtol=1e-3)
    np.testing.assert_allclose(
        model.predict(X_star, return_std=True, noise_variance=0)[1] ** 2, variance + own, rtol=1e-3
    )
    lower, upper = model.predict_interval(X_star, 0.9, noise_variance=new)
    np.testing.assert_allclose((upper - lower) / 2, 1.6448536 * law.std)
    found = model.explain(X_star)
    np.testing.assert_allclose(found.mean(y), mean, rtol=1e-5)


def test_rows_that_are_noisier_weigh_less_and_intervals_hold_for_all_of_them(tmp_path, few_steps):
    X, y, noise, _ = table(2200, seed=1)
    X_test, y_test, noise_test, f_test = table(3000, seed=2)
    settings = {"kernel": "matern52", "whitening": "diagonal", "random_state": 0, "n_jobs": 1}
    model = GPnnRegressor(**settings).fit(X, y, noise_variance=noise)
    blind = GPnnRegressor(**settings).fit(X, y)
    assert metrics.rmse(f_test, model.predict_distribution(X_test)) < 0.8 * metrics.rmse(
        f_test, blind.predict_distribution(X_test)
    )
    lower, upper = model.predict_interval(X_test, noise_variance=noise_test)
    inside = (lower <= y_test) & (y_test <= upper)
    for part in np.array_split(np.argsort(noise_test), 5):  # 600 rows: a standard error of 1.2 %
        assert 0.86 < inside[part].mean() < 0.94
    assert (
        model.evaluate(X_test, y_test, noise_variance=noise_test)["nll"] < blind.evaluate(X_test, y_test)["nll"] - 0.2
    )
    law = model.predict_distribution(X_test, noise_variance=noise_test)
    np.testing.assert_allclose(law.known, noise_test)
    model.save(tmp_path / "model.gpnn")
    loaded = GPnnRegressor.load(tmp_path / "model.gpnn")
    np.testing.assert_array_equal(loaded.predict_distribution(X_test, noise_variance=noise_test).variance, law.variance)
    before = model.predict_distribution(X_test[:9], noise_variance=noise_test[:9])
    model.recalibrate(X_test, f_test + 3 * (y_test - f_test), noise_variance=noise_test)  # three times the noise
    assert model._factors[0] > 2
    after = model.predict_distribution(X_test[:9], noise_variance=noise_test[:9])
    np.testing.assert_allclose(after.variance - noise_test[:9], model._factors[0] * (before.variance - noise_test[:9]))


def test_a_factor_beside_what_is_known(rng):
    variance, known = rng.uniform(0.5, 2, 20_000), rng.uniform(0, 5, 20_000)
    errors = np.sqrt(3 * variance + known) * rng.normal(size=20_000)
    alpha = factor_beside(errors**2, variance, known)
    assert alpha == pytest.approx(3, rel=0.1)
    total = alpha * variance + known  # where the slope of the likelihood is zero, up to the rows that it begins with
    assert np.mean(variance / total * (errors**2 / total - 1)) == pytest.approx(0, abs=2e-3)
    assert factor_beside(errors**2, variance, np.zeros(20_000)) == pytest.approx(
        np.mean(errors**2 / variance), rel=0.02
    )
    assert factor_beside(0.1 * known, variance, known) < 0.2  # hardly anything is left to the model
    assert factor_beside(errors[:5] ** 2, variance[:5], 1e3 * known[:5]) == pytest.approx(
        1, abs=0.05
    )  # they say nothing
    law = Prediction(np.zeros(20_000), variance).with_noise(known)
    calibrated = fit_calibration(errors, law, np.ones((20_000, 1)))(law, np.ones((20_000, 1)))
    np.testing.assert_array_equal(calibrated.known, known)
    assert metrics.calibration(errors, calibrated) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("mean", ["constant", "linear", Ridge(alpha=1.0)], ids=str)
@pytest.mark.parametrize("whitening", ["none", "diagonal", "full"])
def test_an_integer_weight_is_as_many_rows(mean, whitening):
    X, y, _, _ = table(60)
    weights = np.random.default_rng(0).integers(0, 4, 60)
    settings = GIVEN | {"mean": mean, "whitening": whitening, "kernel": "matern32", "engine": "reference"}
    weighted = GPnnRegressor(n_neighbors=60, **settings)
    repeated = GPnnRegressor(n_neighbors=int(weights.sum()), **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer neighbours than asked for
        weighted.fit(X, y, sample_weight=weights)
        repeated.fit(X.repeat(weights, axis=0), y.repeat(weights))
    queries = X[:10] + 0.02
    one, other = weighted.predict_distribution(queries), repeated.predict_distribution(queries)
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-5)  # the index keeps float32
    np.testing.assert_allclose(one.variance, other.variance, rtol=1e-5)
    found = weighted.explain(queries)
    assert (weights[found.indices] > 0).all()  # rows keep their numbers, and those of weight 0 say nothing
    np.testing.assert_allclose(found.mean(y), one.mean, rtol=1e-5)


def test_weights_are_inverse_noise():
    X, y, _, _ = table(60)
    settings = GIVEN | {"kernel": "matern32", "n_neighbors": 60, "engine": "reference"}
    weighted = GPnnRegressor(**settings).fit(X, y, sample_weight=np.full(60, 4.0))
    own = 0.05 * y.std() ** 2
    mean, variance = exact("matern32", X, y, np.full(60, own / 4), X[:5], y.std())
    law = weighted.predict_distribution(X[:5])
    np.testing.assert_allclose(law.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(law.variance, variance + own, rtol=1e-5)  # of a row of weight 1


def test_weights_through_scikit_learns_routing():
    X, y, _, _ = table(80)
    weights = np.where(np.arange(80) < 40, 1.0, 100.0)
    model = GPnnRegressor(kernel="matern32", n_neighbors=20, **GIVEN)
    with sklearn.config_context(enable_metadata_routing=True):
        asked = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=False),
            model.set_fit_request(sample_weight=True, noise_variance=True),
        )
        asked.fit(X, y, sample_weight=weights, noise_variance=np.full(80, 0.1))
        assert asked[-1]._noise.share.min() == 0.01
        asked[-1].set_score_request(sample_weight=True)
        params = {"sample_weight": weights, "noise_variance": np.full(80, 0.1)}
        scores = cross_validate(asked, X, y, cv=3, params=params)["test_score"]
    assert scores.shape == (3,)


@pytest.mark.parametrize("settings", [{"groups": True}, {"paper": True}, {"few": True}], ids=str)
def test_with_everything_else(settings, few_steps):
    X, y, noise, f = table(300 if "few" in settings else 2100, seed=3)
    recipe = GPnnRegressor.paper if "paper" in settings else GPnnRegressor
    own = {"n_neighbors": 50, "calibration_size": 100} if "paper" in settings else {"whitening": "diagonal"}
    model = recipe(kernel="matern32", random_state=0, n_jobs=1, **own)
    to_come = {"groups": np.arange(len(y)) // 50} if "groups" in settings else {}
    weights = np.where(np.arange(len(y)) % 7 == 0, 0.0, 1.0)
    model.fit(X, y, noise_variance=noise, sample_weight=weights, **to_come)
    law = model.predict_distribution(X, noise_variance=noise)
    assert np.sqrt(np.mean((law.mean - f) ** 2)) < 0.3
    assert not np.isin(np.arange(0, len(y), 7), model.kneighbors(X[:50]).indices).any()
    np.testing.assert_allclose(model.explain(X[:30]).mean(y), law.mean[:30], atol=2e-3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"noise_variance": [1.0, 2.0]}, r"shape \(2,\); give one number for each of the 60 rows"),
        ({"noise_variance": np.full(60, -1.0)}, "not negative; 60 values are not, the first of them -1.0 in row 0"),
        ({"noise_variance": np.full(60, np.nan)}, "must be finite"),
        ({"noise_variance": ["a"] * 60}, "must be numbers"),
        ({"sample_weight": np.full(60, -1.0)}, "sample_weight must be finite and not negative"),
        ({"sample_weight": np.zeros(60)}, "nothing is left to learn"),
    ],
)
def test_what_cannot_be_noise(wrong, message):
    X, y, _, _ = table(60)
    with pytest.raises(InvalidInputError, match=message):
        GPnnRegressor(kernel="rbf", n_neighbors=20, **GIVEN).fit(X, y, **wrong)


def test_noise_of_new_rows_needs_that_of_the_old_ones():
    X, y, noise, _ = table(60)
    model = GPnnRegressor(kernel="rbf", n_neighbors=20, **GIVEN).fit(X, y)
    with pytest.raises(InvalidInputError, match="fitted without"):
        model.predict(X, noise_variance=0.1)
    model.fit(X, y, noise_variance=noise)
    with pytest.raises(InvalidInputError, match="shape"):
        model.predict_quantiles(X, [0.5], noise_variance=[0.1, 0.2])
