"""SVGP and VNNGP: the two variational rivals, trained by GPyTorch (extra `gpnn[baselines]`), on CPU or CUDA.

GPyTorch maximises the bound (`_gpytorch.py`); what it found is kept as arrays, from which predictions follow in closed
form below. A fitted model therefore pickles, and predicts where torch is not installed.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from gpnn.common.errors import InvalidInputError, MissingExtraError
from gpnn.common.kernels import get_kernel, squared_distances
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines.cpu.neighbors import NeighborIndex, make_index
from gpnn.engines.parallel import for_each_block
from gpnn.stages.contract import DistributionRegressor
from gpnn.stages.validation import check_new_rows, check_settings, check_training_data
from gpnn.stages.whitening import Whitener


@dataclass(kw_only=True, eq=False, repr=False)
class _Variational(DistributionRegressor):
    """Whiten, train, keep q(u). Subclasses say which bound is maximised and what one block of queries is given."""

    _block_size: ClassVar[int]
    _jitter: ClassVar[float]  # on the diagonal of K, for its Cholesky factor; to the model it is noise

    # Of these settings `dataclass` writes the constructor; comparing and printing stay as scikit-learn has them.
    kernel: str
    batch_size: int
    n_epochs: int
    learning_rate: float = 0.01
    whitening: str = "full"
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    def fit(self, X, y):
        """Learn from X (n, d) and y (n,): arrays, or frames whose column names are then remembered."""
        self.__dict__.pop("fit_report_", None)  # not fitted until this fit is complete
        self._check_settings()
        training = _import_training()
        X, y = check_training_data(self, X, y)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        begin = perf_counter()
        self.whitener_ = Whitener.fit(X, y, self.whitening, getattr(self, "feature_names_in_", None))
        order = rng.permutation(len(X))
        rows, targets = self.whitener_.transform(X[order]), self.whitener_.transform_y(y[order])
        whitened = perf_counter()
        trained = self._train(training, rows, targets, int(rng.integers(2**31)))
        self.params_: Hyperparameters = trained.params
        self._keep(trained)
        self.fit_report_ = {
            "n": len(X),
            "d": X.shape[1],
            "device": trained.device,
            "elbo": trained.elbo,
            "seconds": {"whiten": whitened - begin, "train": perf_counter() - whitened},
        }
        return self

    def predict_distribution(self, X) -> Prediction:
        """The predictive law of y* at each row of X, in the units of y."""
        check_is_fitted(self)
        X = check_new_rows(self, X)
        mean, variance = np.empty((2, len(X)))

        def predict(part: slice) -> None:
            mean[part], variance[part] = self._predict_block(self.whitener_.transform(X[part]))

        for_each_block(predict, len(X), self._block_size, None, "predict" if self.verbose else None)
        # Rounding can leave a variance a hair below that of the noise alone, which no prediction can beat.
        return self.whitener_.inverse(Prediction(mean, np.maximum(variance, self.params_.noise_variance)))

    def __sklearn_is_fitted__(self) -> bool:
        return "fit_report_" in self.__dict__

    def _check_settings(self) -> None:
        check_settings(self)
        rate = self.learning_rate
        if not (isinstance(rate, numbers.Real) and 0 < rate < np.inf):
            raise InvalidInputError(f"learning_rate = {rate!r} must be a positive number, such as 0.01.")

    def _covariance(self, A: Array, B: Array) -> Array:
        """σ_f² c(|a − b|²/l²), (len(A), len(B))"""
        A, B = (np.asarray(rows, dtype=float) / self.params_.lengthscale for rows in (A, B))
        return self.params_.kernel_variance * get_kernel(self.kernel).correlation(squared_distances(A, B))

    def _train(self, training, rows: Array, targets: Array, seed: int):
        """What GPyTorch learned from whitened rows in random order: a `_gpytorch.Trained`."""
        raise NotImplementedError

    def _keep(self, trained) -> None:
        """What a prediction needs of it."""
        raise NotImplementedError

    def _predict_block(self, X_star: Array) -> tuple[Array, Array]:
        """Mean and variance of whitened y* for a few whitened queries."""
        raise NotImplementedError


@dataclass(kw_only=True, eq=False, repr=False)
class SVGP(_Variational):
    """Sparse variational Gaussian process (Hensman et al. 2013), with the settings of the paper's appendix.

    M inducing points, first a random subset of the rows, are learned together with the parameters and with a Gaussian
    q(u) of full covariance, by Adam on minibatches, in float32. A step costs M³ + M²·batch_size.

    Parameters
    ----------
    kernel : "exponential", "rbf", "matern32" or "matern52"
    n_inducing : M; all rows if there are fewer
    batch_size, learning_rate, n_epochs : rows of a step of Adam, its rate, passes over the rows
    whitening : "full" (decorrelate the columns), "diagonal" (scale them) or "none"
    device : where to train: "cpu", "cuda", or "auto", CUDA if there is one. Predictions are made on the CPU
    random_state : seed; the same seed gives the same numbers on the same machine. Torch's own state is not touched
    verbose : 1 shows progress bars where there is a terminal

    Attributes
    ----------
    params_ : Hyperparameters, in whitened units
    inducing_points_ : (M, d), in whitened units
    whitener_ : what the data were turned into
    fit_report_ : seconds of each stage, sizes, device, and the bound on the log likelihood of a row in the last epoch
    """

    _block_size = 1000
    _jitter = 1e-4

    kernel: str = "rbf"
    n_inducing: int = 1024
    batch_size: int = 1024
    n_epochs: int = 100

    def _train(self, training, rows, targets, seed):
        return training.train_svgp(self, rows, targets, self.n_inducing, self._jitter, seed)

    def _keep(self, trained) -> None:
        self.inducing_points_ = trained.points
        K = self._covariance(trained.points, trained.points) + self._jitter * np.eye(len(trained.points))
        self._cholesky = np.linalg.cholesky(K)
        self._mean, self._root = trained.mean, trained.root

    def _predict_block(self, X_star):
        # With K_ZZ = LLᵀ, u = Lv, q(v) = N(m, RRᵀ) and a = L⁻¹k*, f* is N(aᵀm, k** − aᵀa + |Rᵀa|²).
        a = solve_triangular(self._cholesky, self._covariance(self.inducing_points_, X_star), lower=True)
        explained, left = (a**2).sum(axis=0), ((self._root.T @ a) ** 2).sum(axis=0)
        return a.T @ self._mean, self.params_.kernel_variance - explained + left + self.params_.noise_variance


@dataclass(kw_only=True, eq=False, repr=False)
class VNNGP(_Variational):
    """Variational nearest-neighbour Gaussian process (Wu et al. 2022): every row is an inducing point.

    A row's value depends on its m nearest earlier rows (in random order), a prediction on its m nearest rows; q(u) has
    a diagonal covariance and begins at the targets. Finding the earlier neighbours costs n² once; an epoch solves n
    systems of size m in float64: with m = 256 about ten milliseconds a row on two cores, and ever less the smaller m.
    The first minibatch of an epoch is always the first m rows, so batch_size = n_neighbors weighs all rows alike.

    Parameters
    ----------
    kernel : "exponential", "rbf", "matern32" or "matern52". The smoother, the stronger the correlations of u that a
        diagonal q(u) cannot have, and the worse the fit: the bound then prefers lengthscales that are too short
    n_neighbors : m; n − 1 if there are fewer rows
    batch_size, learning_rate, n_epochs : rows of a step of Adam, its rate, passes over the rows
    whitening : "full" (decorrelate the columns), "diagonal" (scale them) or "none"
    device : where to train: "cpu", "cuda", or "auto", CUDA if there is one. Predictions are made on the CPU
    random_state : seed; the same seed gives the same numbers on the same machine. Torch's own state is not touched
    verbose : 1 shows progress bars where there is a terminal

    Attributes
    ----------
    params_ : Hyperparameters, in whitened units
    n_neighbors_ : m, or fewer if there were fewer rows
    whitener_, index_ : what the data were turned into
    fit_report_ : seconds of each stage, sizes, device, and the bound on the log likelihood of a row in the last epoch
    """

    _block_size = 16
    _jitter = 1e-3

    kernel: str = "exponential"
    n_neighbors: int = 256
    batch_size: int = 256
    n_epochs: int = 20

    def _train(self, training, rows, targets, seed):
        self.n_neighbors_ = min(self.n_neighbors, len(rows) - 1)
        return training.train_vnngp(self, rows, targets, self.n_neighbors_, self._jitter, seed)

    def _keep(self, trained) -> None:
        rows = trained.points.astype(np.float32)
        index = make_index("exact", len(rows), rows.shape[1], self.n_neighbors_)
        self.index_: NeighborIndex = index.build(rows, self.n_neighbors_, rows[:1])
        self._mean, self._std = trained.mean[self.index_.order], trained.root[self.index_.order]

    def _predict_block(self, X_star):
        mean, variance = np.empty((2, len(X_star)))
        nearest = self.index_.query(X_star, self.n_neighbors_).indices
        for q, neighbors in enumerate(nearest):
            N = self.index_.points(neighbors)
            k_star = self._covariance(N, X_star[q, None])[:, 0]
            K = self._covariance(N, N) + self._jitter * np.eye(len(N))
            w = cho_solve(cho_factor(K, lower=True), k_star)
            # With q(u) = N(m, diag s²) at the neighbours and w = K⁻¹k*, f* is N(wᵀm, k** − wᵀk* + |s∘w|²).
            mean[q] = w @ self._mean[neighbors]
            left = np.sum((self._std[neighbors] * w) ** 2)
            variance[q] = self.params_.kernel_variance - w @ k_star + left + self.params_.noise_variance
        return mean, variance


def _import_training():
    """The one module that needs the extra."""
    try:
        return import_module("gpnn.baselines._gpytorch")
    except ImportError as error:
        raise MissingExtraError(
            f"SVGP and VNNGP are trained by PyTorch and GPyTorch, and {error.name} could not be imported ({error}). "
            "Install both with:\n  pip install 'gpnn[baselines]'"
        ) from error
