from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpnn import GPnnRegressor, Hyperparameters, InvalidInputError
from gpnn.baselines import ConjugateNNGP
from gpnn.baselines.conjugate import previous_neighbors
from gpnn.kernels import KERNELS, squared_distances
from gpnn.neighbors import IVF

PARAMS = Hyperparameters(0.8, 2.0, 0.1)


@parametrize_with_checks(
    [ConjugateNNGP(n_folds=2, inverse_lengthscales=(1.0,), noise_ratios=(0.1, 1.0), random_state=0)]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kernel", ["exponential", "rbf"])
def test_means_are_gpnns_and_variances_a_multiple(wavy, kernel):
    X, y = wavy
    theirs = GPnnRegressor.paper(kernel=kernel, params=PARAMS, n_neighbors=20, calibration_size=0).fit(X[:800], y[:800])
    ours = ConjugateNNGP(kernel=kernel, params=PARAMS, n_neighbors=20, random_state=0).fit(X[:800], y[:800])
    a, b = (model.predict_distribution(X[2000:2200]) for model in (ours, theirs))
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-3 * b.std.min())
    ratio = a.variance / b.variance
    posterior = ours.process_.posteriors[0]
    np.testing.assert_allclose(ratio, posterior.b / (posterior.a - 1) / PARAMS.kernel_variance, rtol=1e-3)
    assert b.degrees_of_freedom is None
    assert a.degrees_of_freedom == 2 * (2 + 800 / 2)


@pytest.mark.parametrize("mean", ["zero", "linear"])
def test_with_all_rows_before_as_neighbours_it_is_the_full_process(rng, mean):
    """Then M̃ = M, and the posterior of (β, σ²) and the law of y* are those of Bayesian regression with covariance M."""
    X = rng.normal(size=(25, 2)).astype(np.float32).astype(float)
    y = 1 + X[:, 0] + np.sin(2 * X[:, 1])
    a, b = 2.5, 0.7
    model = ConjugateNNGP(
        mean=mean, params=PARAMS, n_neighbors=24, whitening="none", variance_prior=(a, b), random_state=0
    ).fit(X, y)
    target = (y - y.mean()) / y.std()
    X_star = rng.normal(size=(9, 2)).astype(np.float32).astype(float)

    def correlation(A, B):
        return KERNELS["exponential"].correlation(squared_distances(A / 0.8, B / 0.8))

    alpha = PARAMS.noise_variance / PARAMS.kernel_variance
    inverse = np.linalg.inv(correlation(X, X) + alpha * np.eye(25))
    H, H_star = (np.column_stack([np.ones(len(rows)), rows])[:, : 3 if mean == "linear" else 0] for rows in (X, X_star))
    V = np.linalg.inv(H.T @ inverse @ H + np.eye(H.shape[1]) / 1e6)
    g = V @ H.T @ inverse @ target
    # σ² has the marginal likelihood of y ~ t with covariance M + H V_β Hᵀ.
    marginal = np.linalg.inv(np.linalg.inv(inverse) + 1e6 * H @ H.T)
    b_star = b + 0.5 * target @ marginal @ target
    posterior = model.process_.posteriors[0]
    assert posterior.a == a + 12.5
    assert posterior.b == pytest.approx(b_star, rel=1e-5)
    np.testing.assert_allclose(posterior.g, g, rtol=1e-6)
    np.testing.assert_allclose(posterior.V, V, rtol=1e-6)

    model.process_ = replace(model.process_, m=25)  # queries have all 25 rows before them
    k = correlation(X_star, X)
    u = H_star - k @ inverse @ H
    m0 = H_star @ g + k @ inverse @ (target - H @ g)
    v0 = 1 + alpha - np.einsum("qi,ij,qj->q", k, inverse, k) + np.einsum("qi,ij,qj->q", u, V, u)
    prediction = model.predict_distribution(X_star)
    np.testing.assert_allclose(model.whitener_.transform_y(prediction.mean), m0, rtol=1e-6)
    np.testing.assert_allclose(prediction.variance / model.whitener_.y_std**2, b_star / (a + 12.5 - 1) * v0, rtol=1e-5)
    assert prediction.degrees_of_freedom == 2 * (a + 12.5)


def test_the_law_is_right_where_the_model_is(rng):
    """Many data sets from the process: PIT values of rows held out are uniform."""
    values = []
    for seed in range(40):
        X = rng.normal(size=(60, 2))
        K = KERNELS["exponential"].correlation(squared_distances(X / 0.8, X / 0.8)) + 0.05 * np.eye(60)
        y = rng.multivariate_normal(np.zeros(60), K)
        model = ConjugateNNGP(params=PARAMS, n_neighbors=40, whitening="none", random_state=seed).fit(X[:50], y[:50])
        law = model.predict_distribution(X[50:])
        scale = law.std * np.sqrt((law.degrees_of_freedom - 2) / law.degrees_of_freedom)
        values.append(stats.t.cdf(y[50:], law.degrees_of_freedom, law.mean, scale))
    assert stats.kstest(np.concatenate(values), "uniform").pvalue > 0.01


@pytest.mark.parametrize("index", ["auto", "flat", IVF(recall=0.9)])
def test_neighbours_before_each_row(rng, index):
    X = rng.normal(size=(700, 3)).astype(np.float32)
    found = previous_neighbors(X, 8, index, n_jobs=2)
    assert found.shape == (692, 8)
    assert (found < np.arange(8, 700)[:, None]).all()
    right = 0
    for i in range(8, 700):
        assert len(set(found[i - 8])) == 8
        true = np.argsort(((X[:i] - X[i]) ** 2).sum(axis=1))[:8]
        right += len(np.intersect1d(found[i - 8], true))
    assert right >= (0.85 if isinstance(index, IVF) else 1) * found.size


def test_neighbours_before_each_row_where_rows_repeat():
    X = np.zeros((300, 2), np.float32)
    found = previous_neighbors(X, 5, "auto", n_jobs=1)
    assert (found < np.arange(5, 300)[:, None]).all()
    assert all(len(set(row)) == 5 for row in found)


def test_cross_validation_finds_the_noise_and_the_trend(wavy):
    X, y = wavy
    settings = {"noise_ratios": (1e-3, 1e-2, 1.0), "inverse_lengthscales": (0.3, 3.0), "n_folds": 3, "random_state": 0}
    model = ConjugateNNGP(**settings).fit(X[:600], y[:600])
    assert model.cv_scores_.shape == (2, 3)
    best = np.unravel_index(np.argmin(model.cv_scores_), (2, 3))
    ratio = model.params_.noise_variance / model.params_.kernel_variance
    assert ratio == pytest.approx(settings["noise_ratios"][best[1]])
    assert model.params_.lengthscale == pytest.approx(1 / settings["inverse_lengthscales"][best[0]])
    assert ratio < 1
    scores = model.evaluate(X[2000:], y[2000:])
    assert scores["rmse"] < 0.3
    assert 0.6 < scores["calibration"] < 1.4
    assert "nll" not in scores
    assert scores["log_score"] < 0.3

    trend = 100 * X[:, 0] + y
    linear = ConjugateNNGP(mean="linear", criterion="rmse", **settings).fit(X[:600], trend[:600])
    far = X[:1] + np.array([30.0, 0, 0])  # 30 standard deviations away only the trend remains
    assert linear.predict(far)[0] == pytest.approx(100 * far[0, 0] + 50, rel=0.05)
    assert linear.cv_scores_.min() == pytest.approx(linear.evaluate(X[2000:], trend[2000:])["rmse"], rel=0.3)


def test_same_seed_same_numbers_whatever_the_threads(wavy):
    X, y = wavy
    settings = {"noise_ratios": (0.01, 0.1), "inverse_lengthscales": (1.0,), "random_state": 1, "mean": "linear"}
    one, two = (ConjugateNNGP(n_jobs=jobs, **settings).fit(X[:400], y[:400]) for jobs in (1, 2))
    np.testing.assert_array_equal(one.cv_scores_, two.cv_scores_)
    np.testing.assert_allclose(one.predict(X[2000:]), two.predict(X[2000:]), rtol=1e-12)


def test_no_noise_and_repeated_rows(rng):
    X = np.repeat(rng.normal(size=(40, 2)), 3, axis=0)
    model = ConjugateNNGP(params=Hyperparameters(1.0, 1.0, 0.0)).fit(X, np.sin(X[:, 0]))
    mean, std = model.predict(X + 0.05, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"mean": "quadratic"}, "mean"),
        ({"criterion": "nll"}, "criterion"),
        ({"n_folds": 1}, "n_folds"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"noise_ratios": (0.0, 1.0)}, "noise_ratios"),
        ({"inverse_lengthscales": ()}, "inverse_lengthscales"),
        ({"variance_prior": (-1.0, 1.0)}, "variance_prior"),
        ({"variance_prior": (2.0,)}, "variance_prior"),
        ({"index": "hnsw"}, "index"),
    ],
)
def test_settings(wavy, settings, word):
    with pytest.raises(InvalidInputError, match=word):
        ConjugateNNGP(**settings).fit(wavy[0][:50], wavy[1][:50])
