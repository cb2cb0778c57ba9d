"""Theorem 1: where MSE, calibration and NLL go as n → ∞, whatever the kernel, lengthscale and kernel variance."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Limits:
    mse: float
    calibration: float
    nll: float

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self.mse))


def limits(noise_variance: float, assumed_noise_variance: float, n_neighbors: int) -> Limits:
    """Limits for true noise σ_ξ² and assumed noise σ̂_ξ², up to terms of order m⁻²."""
    widening = 1 + 1 / n_neighbors
    ratio = noise_variance / assumed_noise_variance
    return Limits(
        mse=noise_variance * widening,  # Theorem 1 (i)
        calibration=ratio,  # (ii)
        nll=float(0.5 * (np.log(assumed_noise_variance * widening) + ratio + np.log(2 * np.pi))),  # (iii)
    )
