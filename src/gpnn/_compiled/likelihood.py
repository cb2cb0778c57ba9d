"""Log likelihood of one block of rows, with its gradient in every lengthscale, in one compiled function."""

import numpy as np

from gpnn._compiled import aligned, jit
from gpnn._compiled.cholesky import factor, minus_inverse
from gpnn._compiled.covariance import covariance
from gpnn._compiled.vectors import LANES, fma, like, load, store, sum_lanes

_LANES = LANES[np.dtype(np.float64)]


@jit
def block_covariance(kernel_tag, X, y, lengthscale, kernel_variance, noise_variance, A, slope, z):
    """K = σ_f²C + σ_ξ²I of X (s, d) in the strips of A (lower triangle) and y in the right-hand sides, for `factor`.

    z gets the rows divided by the lengthscale, and `slope` dc/d(r²) (unless it has no room), both in strips.
    """
    s, d = X.shape
    lanes = _LANES
    n_strips = -(-s // lanes)
    padded = n_strips * lanes
    stride = padded * lanes
    right = n_strips * stride
    for i in range(padded):
        at = (i // lanes) * d * lanes + i % lanes
        for k in range(d):
            z[at + k * lanes] = X[i, k] / lengthscale[k] if i < s else 0.0

    for strip in range(n_strips):
        row = strip * d * lanes
        zero = like(load(z, row), 0.0)
        for j in range((strip + 1) * lanes):
            column = (j // lanes) * d * lanes + j % lanes
            r2 = zero
            for k in range(d):
                difference = load(z, row + k * lanes) - like(zero, z[column + k * lanes])
                r2 = fma(difference, difference, r2)
            g, dc = covariance(kernel_tag, r2)
            at = strip * stride + j * lanes
            store(A, at, like(zero, kernel_variance) * (like(zero, 1.0) - g))
            if len(slope) > 0:
                store(slope, at, dc)
        for lane in range(lanes):
            i = strip * lanes + lane
            store(A, right + i * lanes, zero)
            if i < s:
                A[strip * stride + i * lanes + lane] += noise_variance
                A[right + i * lanes] = y[i]
            else:  # padding: a row of the identity, which changes nothing below
                for j in range(i):
                    A[strip * stride + j * lanes + lane] = 0.0
                A[strip * stride + i * lanes + lane] = 1.0


@jit
def block_likelihood(kernel_tag, X, y, lengthscale, kernel_variance, noise_variance, A, slope, z, beta, sums, gradient):
    """Negative log likelihood (eq. 1) of X (s, d), y (s,); `gradient` gets its derivatives (l_1 … l_d, σ_f², σ_ξ²).

    A, slope, z, beta and sums are scratch, from `scratch` for s rows or more. Returns inf if K is not positive
    definite.
    """
    s, d = X.shape
    lanes = _LANES
    n_strips = -(-s // lanes)
    padded = n_strips * lanes
    stride = padded * lanes
    right = n_strips * stride
    block_covariance(kernel_tag, X, y, lengthscale, kernel_variance, noise_variance, A, slope, z)
    if not factor(A, n_strips, lanes, stride, 0.0):
        return np.inf
    half_log_determinant = 0.0
    for i in range(s):
        half_log_determinant -= np.log(A[(i // lanes) * stride + i * lanes + i % lanes])
    minus_inverse(A, n_strips, lanes, stride)
    for strip in range(n_strips):  # β = K⁻¹y = L⁻ᵀ(L⁻¹y)
        total = like(load(A, 0), 0.0)
        for k in range(strip * lanes, padded):
            total = fma(load(A, right + stride * (strip + 1) + k * lanes), like(total, A[right + k * lanes]), total)
        store(beta, strip * lanes, total)

    # dloss/dK = ½(K⁻¹ − ββᵀ); each derivative is its inner product with dK/dθ.
    y_beta = 0.0
    by_noise = 0.0
    for i in range(s):
        y_beta += y[i] * beta[i]
        by_noise += 0.5 * (-A[(i // lanes) * stride + i * lanes + i % lanes] - beta[i] * beta[i])
    for strip in range(n_strips):
        row = strip * d * lanes
        own = load(beta, strip * lanes)
        zero = own - own
        if strip == 0:
            for k in range(d):
                store(sums, k * lanes, zero)
        for j in range((strip + 1) * lanes):
            column = (j // lanes) * d * lanes + j % lanes
            at = strip * stride + j * lanes
            twice = 1.0 if j >= strip * lanes else 2.0  # the triangle above has the same sums
            weight = like(zero, -twice) * fma(own, like(zero, beta[j]), load(A, at)) * load(slope, at)
            for k in range(d):  # Σ dloss/d(r²_ij) (z_ik − z_jk)²
                difference = load(z, row + k * lanes) - like(zero, z[column + k * lanes])
                store(sums, k * lanes, fma(weight, difference * difference, load(sums, k * lanes)))
    for k in range(d):
        gradient[k] = -kernel_variance * sum_lanes(load(sums, k * lanes)) / lengthscale[k]
    gradient[d] = (0.5 * (s - y_beta) - noise_variance * by_noise) / kernel_variance  # dK/dσ_f² = (K − σ_ξ²I)/σ_f²
    gradient[d + 1] = by_noise
    return 0.5 * (y_beta + s * np.log(2 * np.pi)) + half_log_determinant


def scratch(s: int, d: int):
    padded = -(-s // _LANES) * _LANES
    sizes = (padded * (2 * padded + _LANES), padded**2, padded * d, padded, d * _LANES)
    return tuple(aligned(size, np.float64) for size in sizes)
