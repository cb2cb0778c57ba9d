"""How parameters of a metric follow the slope of a predictive likelihood: Adam on minibatches of probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array

if TYPE_CHECKING:
    from gpnn.engines import Neighborhoods

LOWEST = float(np.log(1e-6))  # of the noise variance, as in phase 1
SHARE = 0.3  # of the typical scale in that of a neighbourhood


class Adam:
    """Steps of Adam whose length falls to zero over the second half.

    Where columns are many, most of them say little and their steps follow noise: shorter ones keep the metric from
    going astray.
    """

    def __init__(self, rate: Array | float, size: int, n_steps: int):
        self.first, self.second = np.zeros(size), np.zeros(size)
        self.rate, self.n_steps, self.number = np.broadcast_to(rate, size).astype(float), n_steps, 0

    @property
    def left(self) -> int:
        return self.n_steps - self.number

    def step(self, u: Array, gradient: Array) -> None:
        """One of them, from u, in place."""
        from gpnn.engines.compiled.descent import adam_step  # numba comes with it: not before it is needed

        self.number += 1
        adam_step(u, gradient, self.first, self.second, self.rate, self.number, self.n_steps)


def theta_of(u: Array, d: int) -> Array:
    """θ as `Hyperparameters.as_vector` has it, from the logarithms of l_1 … l_d, σ_f², σ_ξ²; of a sum of kernels also
    of L_1 … L_d, and of share/(1 − share)."""
    theta = np.exp(u)
    if len(u) > d + 2:
        theta[-1] /= 1 + theta[-1]
    return theta


def descend(
    around: Neighborhoods, kernel: Kernel, batches: NDArray[np.int64], u: Array, adam: Adam, typical: float
) -> tuple[Array, float]:
    """u (see `theta_of`) after each of as many steps as there are batches (k, q) of probes; u itself is where it ends.
    typical: what innovations were before, and then after."""
    path = np.empty((len(batches), len(u)))
    for batch, after in zip(batches, path, strict=True):
        theta = theta_of(u, around.d)
        slope, count, innovation = around.gradient(batch, kernel, theta, SHARE, typical)
        if kernel.broad is not None:
            slope[-1] *= 1 - theta[-1]  # dshare = share (1 − share) du
        typical = take_step(adam, u, around.d, slope * theta, count, innovation, typical)
        after[:] = u
    return path, typical


def take_step(adam: Adam, u: Array, d: int, slope: Array, count: int, innovation: float, typical: float) -> float:
    """Along the mean slope of so many probes; returns what innovations typically are."""
    if count == 0:  # nowhere positive definite: more noise will help
        slope = np.zeros(len(u))
        slope[d + 1] = -1.0
    else:
        slope = slope / count
        typical += 0.1 * (innovation - typical)
    adam.step(u, slope)
    u[d + 1] = max(u[d + 1], LOWEST)
    return typical
