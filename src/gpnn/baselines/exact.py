"""The exact Gaussian process, of all rows (the oracle) or of a random few (the humble rival)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpnn.baselines._base import WhitenedRegressor
from gpnn.common.errors import InvalidInputError
from gpnn.common.kernels import Kernel, get_kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines.compiled.covariance import KERNEL_NUMBERS
from gpnn.engines.compiled.posterior import condition, factor_scratch, latent, query_scratch
from gpnn.engines.local import JITTERS, LOWEST_PIVOT
from gpnn.engines.parallel import progress_bar
from gpnn.stages.estimation import estimate


@dataclass(frozen=True)
class Posterior:
    """A Gaussian process given rows, K factored: build once, ask often, from any thread."""

    n: int
    kernel: Kernel
    params: Hyperparameters
    factor: tuple[Array, Array]
    jitter: float
    """What was added to the diagonal of K, relative to σ_f²."""

    @classmethod
    def of(cls, X: Array, y: Array, kernel: Kernel, params: Hyperparameters) -> Posterior:
        """Given X (n, d) and y (n,) in whitened units."""
        n, d = X.shape
        X, y = np.ascontiguousarray(X, np.float64), np.ascontiguousarray(y, np.float64)
        factor = factor_scratch(n, d)
        scale = params.kernel_variance
        for jitter in JITTERS:
            if condition(KERNEL_NUMBERS[kernel.name], X, y, _lengthscales(params, d), scale,
                         params.noise_variance + jitter * scale, LOWEST_PIVOT * scale, *factor):  # fmt: skip
                return cls(n, kernel, params, factor, jitter)
        raise np.linalg.LinAlgError("the covariance matrix is not positive definite, even with jitter")

    def latent(self, X_star: Array) -> Prediction:
        """The law of f*, without noise, at whitened queries (q, d). It runs in the calling thread."""
        X_star = np.ascontiguousarray(X_star, np.float64)
        mean, variance = np.empty((2, len(X_star)))
        scale = self.params.kernel_variance
        latent(KERNEL_NUMBERS[self.kernel.name], self.n, *self.factor, X_star,
               _lengthscales(self.params, X_star.shape[1]), scale, query_scratch(self.n), mean, variance)  # fmt: skip
        return Prediction(mean, np.maximum(variance, LOWEST_PIVOT * scale))  # below is rounding noise


def _lengthscales(params: Hyperparameters, d: int) -> Array:
    return np.broadcast_to(np.asarray(params.lengthscale, dtype=float), d).copy()


def with_noise(law: Prediction, params: Hyperparameters) -> Prediction:
    """The law of y* = f* + ξ from that of f*."""
    return Prediction(law.mean, law.variance + params.noise_variance)


class ExactGP(WhitenedRegressor):
    """The exact Gaussian process: n² numbers of memory, n³ operations for each step of its estimation.

    Parameters
    ----------
    kernel : "rbf", "exponential", "matern32" or "matern52"
    whitening : "full", "diagonal" or "none", as in `GPnnRegressor`
    params : Hyperparameters in whitened units; given, nothing is estimated
    optimizer : "lbfgs" or "adam", of the likelihood of all rows
    max_rows : refuse more rows than this, before the memory runs out
    n_jobs, random_state, verbose : as in `GPnnRegressor`

    Attributes
    ----------
    params_ : Hyperparameters in whitened units
    posterior_ : the `Posterior` of the training rows
    """

    def __init__(
        self,
        *,
        kernel: str = "rbf",
        whitening: str = "full",
        params: Hyperparameters | None = None,
        optimizer: str = "lbfgs",
        max_rows: int = 10_000,
        n_jobs: int | None = None,
        random_state=None,
        verbose: int = 0,
    ):
        self.kernel = kernel
        self.whitening = whitening
        self.params = params
        self.optimizer = optimizer
        self.max_rows = max_rows
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, X: Array, y: Array, rng: np.random.Generator) -> Hyperparameters:
        if len(X) > self.max_rows:
            raise InvalidInputError(
                f"{len(X)} rows, and max_rows = {self.max_rows}: the matrices of an exact Gaussian process would take "
                f"{24e-9 * len(X) ** 2:.1f} GB. Raise max_rows if there is room and time, or use SubsetOfData, or "
                "GPnnRegressor."
            )
        return self._condition(X, y)

    def _condition(self, X: Array, y: Array) -> Hyperparameters:
        kernel = get_kernel(self.kernel)
        params = self.params
        if params is None:
            params = estimate([X], [y], kernel, self.optimizer, self.n_jobs, self._bar("estimate")).params
        with progress_bar(1, self._bar("factor")) as bar:  # one step, but n³/3 operations long
            self.posterior_ = Posterior.of(X, y, kernel, params)
            bar.update()
        return params

    def _predict_whitened(self, X_star: Array) -> tuple[Prediction, float]:
        return with_noise(self.posterior_.latent(X_star), self.params_), self.posterior_.jitter


class SubsetOfData(ExactGP):
    """The exact Gaussian process of `subset_size` random rows; the others are not looked at.

    Parameters
    ----------
    subset_size : rows to keep
    kernel, whitening, params, optimizer, n_jobs, random_state, verbose : as in `ExactGP`

    Attributes
    ----------
    params_, posterior_ : as in `ExactGP`
    """

    def __init__(
        self,
        *,
        subset_size: int = 2000,
        kernel: str = "rbf",
        whitening: str = "full",
        params: Hyperparameters | None = None,
        optimizer: str = "lbfgs",
        n_jobs: int | None = None,
        random_state=None,
        verbose: int = 0,
    ):
        self.subset_size = subset_size
        self.kernel = kernel
        self.whitening = whitening
        self.params = params
        self.optimizer = optimizer
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, X: Array, y: Array, rng: np.random.Generator) -> Hyperparameters:
        kept = rng.choice(len(X), min(self.subset_size, len(X)), replace=False)
        return self._condition(X[kept], y[kept])
