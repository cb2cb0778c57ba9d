"""The four covariance functions, normalised so that c(0) = 1, as functions of the squared distance r².

Each returns (c, dc/d(r²)); the second gives the gradient in any lengthscale by the chain rule. Distances are already
divided by the lengthscale. Conventions are those of GPyTorch and scikit-learn.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array


@dataclass(frozen=True)
class Kernel:
    name: str
    with_slope: Callable[[Array], tuple[Array, Array]]

    def correlation(self, r2: Array) -> Array:
        """c(r²)"""
        return self.with_slope(r2)[0]


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


def squared_distances(A: Array, B: Array) -> Array:
    """|a_i − b_j|², shape (len(A), len(B)), from differences: no cancellation between near rows."""
    return cdist(A, B, "sqeuclidean")
