"""The exact Gaussian process of some rows: K factored once, then any number of queries."""

import numpy as np

from gpnn.engines.compiled import aligned, jit
from gpnn.engines.compiled.cholesky import PANEL, factor, solve
from gpnn.engines.compiled.covariance import covariance
from gpnn.engines.compiled.likelihood import block_covariance
from gpnn.engines.compiled.vectors import LANES, fma, like, load, store

_LANES = LANES[np.dtype(np.float64)]


@jit
def condition(kernel_tag, X, y, lengthscale, kernel_variance, noise_variance, lowest, A, z, noise=None):
    """A gets the factor of K with L⁻¹y beside it, z the scaled rows; False if K is too close to singular."""
    n_strips = -(-len(X) // _LANES)
    block_covariance(kernel_tag, X, y, lengthscale, kernel_variance, noise_variance, A, np.empty(0), z, noise)
    return factor(A, n_strips, _LANES, n_strips * _LANES**2, lowest)


@jit
def latent(kernel_tag, n, A, z, X_star, lengthscale, kernel_variance, B, mean, variance):
    """Mean and variance of f* (equations 6 and 7 without the noise) at each row of X_star, from what `condition` left
    of n rows.

    B is scratch. Each query has a lane to itself, so its answer does not depend on the others.
    """
    q, d = X_star.shape
    lanes = _LANES
    n_strips = -(-n // lanes)
    stride = n_strips * lanes * lanes
    right = n_strips * stride
    x = np.empty(d * lanes)
    sums = np.empty(2 * lanes)
    for first in range(0, q, PANEL * lanes):
        count = min(PANEL, -(-(q - first) // lanes))
        for strip in range(count):  # k*
            for lane in range(lanes):
                query = min(first + strip * lanes + lane, q - 1)
                for k in range(d):
                    x[k * lanes + lane] = X_star[query, k] / lengthscale[k]
            zero = like(load(x, 0), 0.0)
            for i in range(n_strips * lanes):
                row = (i // lanes) * d * lanes + i % lanes
                r2 = zero
                for k in range(d):
                    difference = load(x, k * lanes) - like(zero, z[row + k * lanes])
                    r2 = fma(difference, difference, r2)
                g = covariance(kernel_tag, r2)[0]
                store(B, strip * stride + i * lanes, like(zero, kernel_variance) * (like(zero, 1.0) - g))
        solve(A, n_strips, lanes, stride, B, count)
        for strip in range(count):
            product = like(load(x, 0), 0.0)
            explained = product
            for i in range(n):  # padding is left out
                a = load(B, strip * stride + i * lanes)  # L⁻¹k*
                product = fma(a, like(a, A[right + i * lanes]), product)
                explained = fma(a, a, explained)
            store(sums, 0, product)
            store(sums, lanes, explained)
            for lane in range(min(lanes, q - first - strip * lanes)):
                query = first + strip * lanes + lane
                mean[query] = sums[lane]  # eq. 6
                variance[query] = kernel_variance - sums[lanes + lane]  # eq. 7


def factor_scratch(n: int, d: int):
    """A and z of `condition`."""
    padded = -(-n // _LANES) * _LANES
    return aligned(padded * (padded + _LANES), np.float64), aligned(padded * d, np.float64)


def query_scratch(n: int):
    """B of `latent`."""
    return aligned(-(-n // _LANES) * _LANES**2 * PANEL, np.float64)
