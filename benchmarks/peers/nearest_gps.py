"""Two small nearest-neighbour Gaussian processes from PyPI: nngpr (NumPy) and gpvecchia (numba)."""

from importlib.metadata import version

import numpy as np
from scipy.optimize import minimize
from sklearn.preprocessing import StandardScaler

LEARNED = 2000  # rows, at most, whose likelihood is maximised: both search all pairs


class _Standardised:
    def __init__(self, seed: int):
        self.seed = seed

    def _begin(self, X, y):
        """Standardised columns and target, and numbers of the rows to learn from."""
        self.scaler = StandardScaler().fit(X)
        self.y_mean, self.y_std = y.mean(), y.std()
        some = np.random.default_rng(self.seed).permutation(len(X))[:LEARNED]
        return self.scaler.transform(X), (y - self.y_mean) / self.y_std, some

    def _in_units(self, mean, std):
        return self.y_mean + self.y_std * np.ravel(mean), self.y_std * np.ravel(std)


class NNGPR(_Standardised):
    """σ_f²·exponential + white noise, 32 neighbours by covariance (its defaults); parameters by its own optimizer on a
    subset of the rows, predictions from all. One lengthscale: with one per column, version 0.1.1 refuses its own
    batches."""

    version = version("nngpr")

    def fit(self, X, y):
        from nngpr.batched_kernels import ConstantKernel, Matern, WhiteKernel
        from nngpr.numpy_nngpr import NumpyNngpr

        X, y, some = self._begin(X, y)
        kernel = ConstantKernel(1.0) * Matern(1.0, nu=0.5) + WhiteKernel(0.1)
        learned = NumpyNngpr(kernel=kernel, random_state=self.seed).fit(X[some], y[some])
        self.model = NumpyNngpr(kernel=learned.kernel_, optimizer=None, random_state=self.seed).fit(X, y)
        return self

    def predict(self, X):
        return self._in_units(*self.model.predict(self.scaler.transform(X), return_std=True))


class GPVecchia(_Standardised):
    """Exponential kernel, one lengthscale per column, in a random order, 30 neighbours; parameters by maximum
    likelihood (its documentation leaves the search to SciPy) on a subset of the rows, predictions from all."""

    version = version("gpvecchia")

    def fit(self, X, y):
        self.X, self.y, some = self._begin(X, y)
        X_some, y_some = self.X[some], self.y[some]

        def loss(u):
            model = self._model(X_some, X_some[:1], np.exp(u))
            return -model.log_marg_likelihood(y_some) / len(y_some)

        start = np.log([1.0, *np.full(X.shape[1], 3.0), 0.3])
        self.params = np.exp(minimize(loss, start, method="L-BFGS-B", options={"maxiter": 30}).x)
        return self

    def _model(self, X, X_star, params):
        from gpvecchia import GPtideVecchia
        from gpvecchia.cov import matern12

        np.random.seed(self.seed)  # noqa: NPY002 - the order is drawn from numpy's global state
        return GPtideVecchia(
            X, X_star, params[-1], matern12, params[:-1], order_func=np.random.permutation, order_params=len(X),
            scale_coords=True, nnum=30, verbose=False,
        )  # fmt: skip

    def predict(self, X):
        return self._in_units(*self._model(self.X, self.scaler.transform(X), self.params)(self.y))
