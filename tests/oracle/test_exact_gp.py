"""With all rows as neighbours, GPnn is the exact Gaussian process: scikit-learn's (GPyTorch's in benchmarks)."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from gpnn import GPnnRegressor, Hyperparameters

PARAMS = Hyperparameters(0.8, 1.7, 0.05)
SKLEARN = {
    "rbf": RBF(0.8),
    "exponential": Matern(0.8, nu=0.5),
    "matern32": Matern(0.8, nu=1.5),
    "matern52": Matern(0.8, nu=2.5),
}


@pytest.mark.parametrize("kernel", SKLEARN)
def test_scikit_learn(kernel, rng):
    X = rng.normal(size=(300, 3))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=300)
    y = (y - y.mean()) / y.std()
    X_star = rng.normal(size=(50, 3))
    exact = GaussianProcessRegressor(
        ConstantKernel(PARAMS.kernel_variance) * SKLEARN[kernel] + WhiteKernel(PARAMS.noise_variance), optimizer=None
    ).fit(X, y)
    mean, std = exact.predict(X_star, return_std=True)
    model = GPnnRegressor.paper(
        kernel=kernel, params=PARAMS, n_neighbors=300, calibration_size=0, whitening="none", random_state=0
    ).fit(X, y)
    our_mean, our_std = model.predict(X_star, return_std=True)
    np.testing.assert_allclose(our_mean, mean, atol=1e-4)
    np.testing.assert_allclose(our_std, std, rtol=1e-4)
