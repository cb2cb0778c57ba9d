"""Equations 5–7 as the paper writes them, in float64, one query at a time: slow, short, and the standard for others."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters
from gpnn.engines.cpu import CPU
from gpnn.engines.cpu.joint import CPUErrors
from gpnn.engines.local import JITTERS, LOWEST_PIVOT, LocalSolution


def solve(
    X_star: Array,
    neighbors: Array,
    y_neighbors: Array,
    kernel: Kernel,
    params: Hyperparameters,
    noise: Array | None = None,
) -> LocalSolution:
    """noise (q, m): the variance of each neighbour's, if it is not σ_ξ² for all."""
    mean, variance, jitter = np.empty((3, len(X_star)))
    innovations = np.empty(y_neighbors.shape)
    for q, (x, N, y) in enumerate(zip(X_star, neighbors, y_neighbors, strict=True)):
        K, k_star = covariances(x, N, kernel, params, None if noise is None else noise[q])
        cholesky, jitter[q] = factor(K, params.kernel_variance)
        mean[q] = k_star @ cho_solve(cholesky, np.asarray(y, dtype=float))  # eq. 6
        explained = k_star @ cho_solve(cholesky, k_star)
        variance[q] = params.kernel_variance - explained + params.noise_variance  # eq. 7
        innovations[q] = solve_triangular(cholesky[0], y, lower=True) ** 2
    # Rounding can leave a variance a hair below that of the noise alone, which no prediction can beat.
    return LocalSolution(mean, np.maximum(variance, params.noise_variance), jitter, innovations)


def covariances(
    x: Array, N: Array, kernel: Kernel, params: Hyperparameters, noise: Array | None = None
) -> tuple[Array, Array]:
    """K_N (m, m), noise included, and k*_N (m,) for one query x (d,) and its neighbours N (m, d)."""
    K = params.kernel_variance * kernel.correlations(N, N, params)
    k_star = params.kernel_variance * kernel.correlations(N, x[None], params)[:, 0]
    return K + (params.noise_variance if noise is None else noise) * np.eye(len(N)), k_star


def factor(K: Array, scale: float):
    """Cholesky factor of K + jitter·scale·I with the smallest jitter that works, and that jitter."""
    for jitter in JITTERS:
        try:
            cholesky = cho_factor(K + jitter * scale * np.eye(len(K)), lower=True)
        except np.linalg.LinAlgError:
            continue
        if (np.diag(cholesky[0]) ** 2 > LOWEST_PIVOT * scale).all():
            return cholesky, jitter
    raise np.linalg.LinAlgError("the local covariance matrix is not positive definite, even with jitter")


class ReferenceErrors(CPUErrors):
    """The covariances of errors as they are: no chain, however many points there are."""

    _whole = 2**62

    def _weights(self, X: Array, numbers: NDArray) -> Array:
        weights = np.empty(numbers.shape)
        for q, (x, N) in enumerate(zip(X, numbers, strict=True)):
            noise = None if self._noise is None else self._noise[N]
            K, k_star = covariances(x, self._points[N], self.kernel, self.params, noise)
            cholesky, _ = factor(K, self.params.kernel_variance)
            weights[q] = cho_solve(cholesky, k_star)  # eq. 6
        return weights


class Reference(CPU):
    """The engine that the others are held to: of the neighbours that the index finds, each size is solved by itself."""

    targets = None  # type: ignore[assignment]  # each by itself

    def describe(self) -> str:
        return "reference, " + super().describe().removeprefix("cpu, ")

    def _solve(self, X_star, neighbors: NDArray, kernel: Kernel, params: Hyperparameters, sizes) -> LocalSolution:
        points, y = self.index.points(neighbors), self.y[neighbors]
        noise = (
            np.full(y.shape, params.noise_variance) if self.noise is None else self.noise[neighbors].variance(params)
        )
        solutions = [solve(X_star, points[:, :m], y[:, :m], kernel, params, noise[:, :m]) for m in sizes]
        mean, variance = (np.stack([getattr(one, name) for one in solutions], axis=1) for name in ("mean", "variance"))
        jitter = np.max([one.jitter for one in solutions], axis=0)
        return LocalSolution(mean, variance, jitter, solutions[-1].innovations)

    def errors(
        self, X_star, n_neighbors: int, kernel: Kernel, params: Hyperparameters, progress=None
    ) -> ReferenceErrors:
        return ReferenceErrors(self.index, X_star, n_neighbors, kernel, params, self.n_jobs, progress, self.noise)
