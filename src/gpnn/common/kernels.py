"""The four covariance functions, normalised so that c(0) = 1, as functions of the squared distance r².

Each returns (c, dc/d(r²)); the second gives the gradient in any lengthscale by the chain rule. Distances are already
divided by the lengthscale. Conventions are those of GPyTorch and scikit-learn.

Two of them make a sum, "matern32+exponential", in which each has lengthscales of its own (`Hyperparameters.broad`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array, Hyperparameters


@dataclass(frozen=True)
class Kernel:
    name: str
    with_slope: Callable[[Array], tuple[Array, Array]]
    """Of a sum: its first part's."""
    broad: "Kernel | None" = None
    """The second part of a sum."""

    def correlation(self, r2: Array) -> Array:
        """c(r²)"""
        return self.with_slope(r2)[0]

    def correlations(self, A: Array, B: Array, params: Hyperparameters) -> Array:
        """c(a_i, b_j), (len(A), len(B)), with the lengthscales of θ̂."""
        c = self.correlation(_scaled_distances(A, B, params.lengthscale))
        if self.broad is None or params.broad is None:
            return c
        second = self.broad.correlation(_scaled_distances(A, B, params.broad.lengthscale))
        return (1 - params.broad.share) * c + params.broad.share * second


def _rbf(r2):
    c = np.exp(-0.5 * r2)
    return c, -0.5 * c


def _exponential(r2):
    r = np.sqrt(r2)
    c = np.exp(-r)
    return c, -0.5 * c / np.maximum(r, 1e-8)  # the slope is infinite at 0, where it is multiplied by r² = 0


def _matern32(r2):
    rho = np.sqrt(3 * r2)
    decay = np.exp(-rho)
    return (1 + rho) * decay, -1.5 * decay


def _matern52(r2):
    rho = np.sqrt(5 * r2)
    decay = np.exp(-rho)
    return (1 + rho + 5 / 3 * r2) * decay, -5 / 6 * (1 + rho) * decay


RBF = Kernel("rbf", _rbf)
EXPONENTIAL = Kernel("exponential", _exponential)
MATERN32 = Kernel("matern32", _matern32)
MATERN52 = Kernel("matern52", _matern52)

KERNELS = {kernel.name: kernel for kernel in (RBF, EXPONENTIAL, MATERN32, MATERN52)}


def get_kernel(name: str) -> Kernel:
    if name not in KERNELS:
        raise InvalidInputError(f"Unknown kernel {name!r}. Choose one of: {', '.join(KERNELS)}.")
    return KERNELS[name]


def get_kernel_or_sum(name: str) -> Kernel:
    parts = str(name).split("+")
    if len(parts) > 2 or not set(parts) <= set(KERNELS):
        raise InvalidInputError(
            f"Unknown kernel {name!r}. Choose one of: {', '.join(KERNELS)}; or a sum of two, such as "
            "'matern32+exponential'."
        )
    first, *broad = (KERNELS[part] for part in parts)
    return Kernel(name, first.with_slope, *broad)


def _scaled_distances(A: Array, B: Array, lengthscale: Array | float) -> Array:
    return squared_distances(*(np.asarray(rows, dtype=float) / lengthscale for rows in (A, B)))


def squared_distances(A: Array, B: Array) -> Array:
    """|a_i − b_j|², shape (len(A), len(B)), from differences: no cancellation between near rows."""
    return cdist(A, B, "sqeuclidean")
