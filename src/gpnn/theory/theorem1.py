"""What theory says of MSE, calibration and NLL, without a simulation: their limits as n → ∞ (Theorem 1), exactly in m,
and their expectations for given neighbours at finite n. Derivations are in docs/theory.md."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from gpnn.common.errors import InvalidInputError
from gpnn.common.kernels import get_kernel
from gpnn.common.types import Array, Hyperparameters
from gpnn.engines.reference import covariances, factor


@dataclass(frozen=True)
class Performance:
    """Expected squared error e*, z* = e*/σ̂*² and negative log likelihood l* of GPnn: numbers, or one per query."""

    mse: float | Array
    calibration: float | Array
    nll: float | Array

    @property
    def rmse(self) -> float | Array:
        return np.sqrt(self.mse)

    @classmethod
    def of(cls, mse: float | Array, variance: float | Array) -> "Performance":
        """From the expected squared error and the variance σ̂*² that was predicted for it."""
        calibration = mse / variance
        nll = 0.5 * (np.log(variance) + calibration + np.log(2 * np.pi))
        return cls(mse, calibration, nll if np.ndim(nll) else float(nll))


def limits(noise_variance: float, assumed_noise_variance: float, n_neighbors: int) -> Performance:
    """Theorem 1: the limits for true noise σ_ξ² and assumed noise σ̂_ξ², up to terms of order m⁻².

    The true and the assumed kernel, lengthscales and kernel variances do not matter. The matched case is
    assumed_noise_variance = noise_variance.
    """
    _check_limits(noise_variance, assumed_noise_variance, n_neighbors)
    widening = 1 + 1 / n_neighbors
    return Performance.of(mse=noise_variance * widening, variance=assumed_noise_variance * widening)


def exact_limits(params: Hyperparameters, assumed: Hyperparameters, n_neighbors: int) -> Performance:
    """The same limits with every power of m⁻¹: what kernel variances add to Theorem 1 (lengthscales never matter).

    All neighbours coincide with x*, so K̂ = σ̂_ξ²I + σ̂_f²11ᵀ and each neighbour has the weight γ̂ = σ̂_f²/(σ̂_ξ² + mσ̂_f²).
    """
    _check_limits(params.noise_variance, assumed.noise_variance, n_neighbors)
    m = n_neighbors
    gamma = assumed.kernel_variance / (assumed.noise_variance + m * assumed.kernel_variance)
    bias = assumed.noise_variance / (assumed.noise_variance + m * assumed.kernel_variance)  # 1 − mγ̂
    return Performance.of(
        mse=params.kernel_variance * bias**2 + params.noise_variance * (1 + m * gamma**2),
        variance=assumed.noise_variance * (1 + gamma),
    )


def expected(
    X_star: Array,
    neighbors: Array,
    kernel: str,
    params: Hyperparameters,
    assumed_kernel: str,
    assumed_params: Hyperparameters,
) -> Performance:
    """Expectations over y and y* for given X_star (q, d) and neighbours (q, m, d), one per query: no sampling.

    They hold for every weakly stationary field and every noise law with the variances of `params`, Gaussian or not.
    """
    true, assumed = get_kernel(kernel), get_kernel(assumed_kernel)
    mse, variance = np.empty((2, len(X_star)))
    for q, (x, N) in enumerate(zip(X_star, neighbors, strict=True)):
        K, k_star = covariances(x, N, true, params)
        K_hat, k_star_hat = covariances(x, N, assumed, assumed_params)
        weights = cho_solve(factor(K_hat, assumed_params.kernel_variance)[0], k_star_hat)
        # (a) + (b) − 2(c) + (d) in the proof of the fully misspecified MSE limit; σ_f² + σ_ξ² is (a) + (b)
        total = params.kernel_variance + params.noise_variance
        mse[q] = total - 2 * k_star @ weights + weights @ K @ weights
        variance[q] = assumed_params.kernel_variance + assumed_params.noise_variance - k_star_hat @ weights  # eq. 7
    return Performance.of(mse, variance)


def _check_limits(noise_variance, assumed_noise_variance, n_neighbors) -> None:
    if not (np.isfinite(noise_variance) and noise_variance >= 0):
        raise InvalidInputError(f"noise_variance = {noise_variance} must be finite and ≥ 0.")
    if not (np.isfinite(assumed_noise_variance) and assumed_noise_variance > 0):
        raise InvalidInputError(
            f"The assumed noise variance is {assumed_noise_variance}; it must be finite and positive: calibration and "
            "NLL divide by it."
        )
    if n_neighbors < 1:
        raise InvalidInputError(f"n_neighbors = {n_neighbors} must be at least 1.")
