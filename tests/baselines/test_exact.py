import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpnn import GPnnRegressor, GPnnWarning, Hyperparameters, InvalidInputError
from gpnn.baselines import ExactGP, SubsetOfData
from gpnn.baselines.exact import Posterior
from gpnn.kernels import KERNELS

PARAMS = Hyperparameters(0.8, 1.7, 0.05)
SKLEARN = {
    "rbf": RBF(0.8),
    "exponential": Matern(0.8, nu=0.5),
    "matern32": Matern(0.8, nu=1.5),
    "matern52": Matern(0.8, nu=2.5),
}


@parametrize_with_checks([ExactGP(), SubsetOfData(subset_size=30, random_state=0)])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kernel", SKLEARN)
@pytest.mark.parametrize("n", [3, 101])
def test_scikit_learn(kernel, n, rng):
    X = rng.normal(size=(n, 3)).astype(np.float32).astype(float)
    y = np.sin(X[:, 0]) + X[:, 1]
    X_star = rng.normal(size=(150, 3)).astype(np.float32).astype(float)
    theirs = GaussianProcessRegressor(
        ConstantKernel(PARAMS.kernel_variance) * SKLEARN[kernel] + WhiteKernel(PARAMS.noise_variance), optimizer=None
    ).fit(X, (y - y.mean()) / y.std())
    mean, std = theirs.predict(X_star, return_std=True)
    our_mean, our_std = ExactGP(kernel=kernel, params=PARAMS, whitening="none").fit(X, y).predict(X_star, True)
    np.testing.assert_allclose(our_mean, y.mean() + y.std() * mean, atol=1e-8)
    np.testing.assert_allclose(our_std, y.std() * std, rtol=1e-8)


def test_gpnn_with_every_row_as_neighbour_is_exact(wavy):
    X, y = wavy
    exact = ExactGP(params=PARAMS).fit(X[:300], y[:300])
    gpnn = GPnnRegressor.paper(kernel="rbf", params=PARAMS, n_neighbors=300, calibration_size=0).fit(X[:300], y[:300])
    for ours, theirs in zip(exact.predict(X[300:400], True), gpnn.predict(X[300:400], True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3)


def test_one_lengthscale_per_column_and_queries_alone_or_together(rng):
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    stretched = Posterior.of(X, y, KERNELS["rbf"], Hyperparameters(np.array([0.5, 2.0]), 1.0, 0.1))
    plain = Posterior.of(X / [0.5, 2.0], y, KERNELS["rbf"], Hyperparameters(1.0, 1.0, 0.1))
    queries = rng.normal(size=(131, 2))
    together, scaled = stretched.latent(queries), plain.latent(queries / [0.5, 2.0])
    np.testing.assert_allclose(together.mean, scaled.mean, rtol=1e-10)
    np.testing.assert_allclose(together.variance, scaled.variance, rtol=1e-10)
    alone = [stretched.latent(q[None]) for q in queries]
    np.testing.assert_array_equal(together.mean, [law.mean[0] for law in alone])
    np.testing.assert_array_equal(together.variance, [law.variance[0] for law in alone])


def test_learns_its_parameters(wavy):
    X, y = wavy
    scores = ExactGP().fit(X[:400], y[:400]).evaluate(X[2000:], y[2000:])
    assert scores["rmse"] < 0.25
    assert 0.6 < scores["calibration"] < 1.6


def test_a_subset_of_all_rows_is_exact_and_a_smaller_one_is_not(wavy):
    X, y = wavy
    exact = ExactGP(params=PARAMS).fit(X[:300], y[:300]).predict(X[300:500])
    whole = SubsetOfData(subset_size=1000, params=PARAMS).fit(X[:300], y[:300])
    np.testing.assert_allclose(whole.predict(X[300:500]), exact, rtol=1e-8)
    few = SubsetOfData(subset_size=100, params=PARAMS, random_state=0).fit(X[:300], y[:300])
    assert few.posterior_.n == 100
    assert few.whitener_.y_mean == pytest.approx(y[:300].mean())  # whitened by all rows
    assert np.abs(few.predict(X[300:500]) - exact).max() > 0.1


def test_refuses_more_rows_than_fit_in_memory(wavy):
    X, y = wavy
    with pytest.raises(InvalidInputError, match=r"max_rows = 1000.*SubsetOfData"):
        ExactGP(max_rows=1000).fit(X, y)


def test_repeated_rows_without_noise(rng):
    X = np.repeat(rng.normal(size=(50, 2)), 4, axis=0)
    model = ExactGP(params=Hyperparameters(1.0, 1.0, 0.0)).fit(X, np.sin(X[:, 0]))
    with pytest.warns(GPnnWarning, match="singular"):
        mean, std = model.predict(X + 0.01, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"kernel": "gauss"}, "kernel"),
        ({"whitening": "pca"}, "whitening"),
        ({"params": (1, 1, 0.1)}, "params"),
        ({"params": Hyperparameters(np.ones(2), 1.0, 0.1)}, "2 lengthscales"),
        ({"optimizer": "sgd"}, "optimizer"),
        ({"subset_size": 1}, "subset_size"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_settings(wavy, settings, word):
    with pytest.raises(InvalidInputError, match=word):
        SubsetOfData(**settings).fit(wavy[0][:50], wavy[1][:50])
