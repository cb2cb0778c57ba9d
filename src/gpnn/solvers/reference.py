"""Equations 5–7 as the paper writes them, in float64, one query at a time: slow, short, and the standard for others."""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from gpnn._types import Array, Hyperparameters
from gpnn.kernels import Kernel, squared_distances
from gpnn.solvers import LocalSolution


def solve(
    X_star: Array, neighbors: Array, y_neighbors: Array, kernel: Kernel, params: Hyperparameters
) -> LocalSolution:
    mean, variance, jitter = np.empty((3, len(X_star)))
    for q, (x, N, y) in enumerate(zip(X_star, neighbors, y_neighbors, strict=True)):
        x, N = (np.asarray(rows, dtype=float) / params.lengthscale for rows in (x, N))
        C = kernel.correlation(squared_distances(N, N))
        K = params.kernel_variance * C + params.noise_variance * np.eye(len(N))
        k_star = params.kernel_variance * kernel.correlation(squared_distances(N, x[None]))[:, 0]
        factor, jitter[q] = _factor(K)
        mean[q] = k_star @ cho_solve(factor, np.asarray(y, dtype=float))  # eq. 6
        explained = k_star @ cho_solve(factor, k_star)
        variance[q] = params.kernel_variance - explained + params.noise_variance  # eq. 7
    # Rounding can leave a variance a hair below that of the noise alone, which no prediction can beat.
    return LocalSolution(mean, np.maximum(variance, params.noise_variance), jitter)


def _factor(K):
    """Cholesky factor of K + jitter·k(0)·I with the smallest jitter of 0, 10⁻¹⁰, …, 10⁻⁴ that works, and that jitter."""
    for jitter in (0.0, *10.0 ** np.arange(-10, -3)):
        try:
            return cho_factor(K + jitter * K[0, 0] * np.eye(len(K)), lower=True), jitter
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("the local covariance matrix is not positive definite, even with jitter")
