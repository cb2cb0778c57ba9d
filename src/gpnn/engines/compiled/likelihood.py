"""The likelihood of a few rows, with its gradient in every lengthscale."""

import numpy as np

from gpnn.engines.compiled import aligned, inline, jit
from gpnn.engines.compiled.cholesky import factor, minus_inverse
from gpnn.engines.compiled.covariance import covariance, farther, no_distance
from gpnn.engines.compiled.vectors import LANES, fma, like, load, store, sum_lanes

_LANES = LANES[np.dtype(np.float64)]


@inline
def _put(kernel, r2, kernel_variance, A, slope, at):
    g, dc = covariance(kernel, r2)
    store(A, at, like(g, kernel_variance) * (like(g, 1.0) - g))
    if len(slope) > 0:
        store(slope, at, dc)


@jit
def block_covariance(kernel, X, y, lengthscale, kernel_variance, noise_variance, A, slope, z, noise=None):
    """K = σ_f²C + σ_ξ²I of X (s, d) in the strips of A (lower triangle) and y in the right-hand sides, for `factor`.

    z gets the rows divided by the lengthscale, and `slope` dc/d(r²) (unless it has no room), both in strips. noise
    (s, 2): each row's share of σ_ξ² and what is known of its noise beside that (`engines.local.Noise`); None: 1 and 0.
    """
    s, d = X.shape
    lanes = _LANES
    n_strips = -(-s // lanes)
    padded = n_strips * lanes
    stride = padded * lanes
    right = n_strips * stride
    for i in range(padded):
        at = (i // lanes) * d * lanes + i % lanes
        if i < s:
            for k in range(d):
                z[at + k * lanes] = X[i, k]
        else:
            for k in range(d):
                z[at + k * lanes] = 0.0
    for strip in range(n_strips):
        for k in range(d):
            at = (strip * d + k) * lanes
            own = load(z, at)
            store(z, at, own / like(own, lengthscale[k]))

    for strip in range(n_strips):
        row = strip * d * lanes
        zero = like(load(z, row), 0.0)
        for j in range(0, (strip + 1) * lanes, 2):  # two columns at a time: neither waits for the other
            column = (j // lanes) * d * lanes + j % lanes
            r0 = no_distance(kernel, zero)
            r1 = no_distance(kernel, zero)
            for k in range(d):
                own = load(z, row + k * lanes)
                r0 = farther(kernel, r0, own - like(zero, z[column + k * lanes]), k)
                r1 = farther(kernel, r1, own - like(zero, z[column + k * lanes + 1]), k)
            at = strip * stride + j * lanes
            _put(kernel, r0, kernel_variance, A, slope, at)
            _put(kernel, r1, kernel_variance, A, slope, at + lanes)
        for lane in range(lanes):
            i = strip * lanes + lane
            store(A, right + i * lanes, zero)
            if i < s:
                if noise is None:
                    A[strip * stride + i * lanes + lane] += noise_variance
                else:
                    A[strip * stride + i * lanes + lane] += noise_variance * noise[i, 0] + noise[i, 1]
                A[right + i * lanes] = y[i]
            else:  # padding: a row of the identity, which changes nothing below
                for j in range(i):
                    A[strip * stride + j * lanes + lane] = 0.0
                A[strip * stride + i * lanes + lane] = 1.0


@jit
def block_likelihood(
    kernel, X, y, lengthscale, kernel_variance, noise_variance, A, slope, z, beta, sums, gradient, noise=None
):
    """Negative log likelihood (eq. 1) of X (s, d), y (s,); `gradient` gets its derivatives (l_1 … l_d, σ_f², σ_ξ²).

    A, slope, z, beta and sums are scratch, from `scratch` for s rows or more. Returns inf if K is not positive
    definite.
    """
    s = len(X)
    lanes = _LANES
    n_strips = -(-s // lanes)
    padded = n_strips * lanes
    stride = padded * lanes
    right = n_strips * stride
    block_covariance(kernel, X, y, lengthscale, kernel_variance, noise_variance, A, slope, z, noise)
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

    y_beta = 0.0
    for i in range(s):
        y_beta += y[i] * beta[i]
    for strip in range(n_strips):  # dloss/dK = ½(K⁻¹ − ββᵀ)
        own = load(beta, strip * lanes)
        half = like(own, -0.5)
        for j in range((strip + 1) * lanes):
            at = strip * stride + j * lanes
            store(A, at, half * fma(own, like(own, beta[j]), load(A, at)))
    _chain_rule(
        kernel, 0.5 * (s - y_beta), s, A, slope, z, lengthscale, kernel_variance, noise_variance, sums, gradient,
        noise,
    )  # fmt: skip
    return 0.5 * (y_beta + s * np.log(2 * np.pi)) + half_log_determinant


@jit
def _sum_squares(s, G, slope, z, d, sums):
    """sums[k] (vectors) = Σ dloss/d(r²_ij) (z_ik − z_jk)² over all pairs, relative to σ_f², from lower triangles. The
    first of these factors are left in place of the slopes."""
    lanes = _LANES
    n_strips = -(-s // lanes)
    stride = n_strips * lanes * lanes
    zero = like(load(G, 0), 0.0)
    for strip in range(n_strips):
        for j in range((strip + 1) * lanes):
            at = strip * stride + j * lanes
            twice = 1.0 if j >= strip * lanes else 2.0  # the triangle above has the same sums
            store(slope, at, like(zero, 2 * twice) * load(G, at) * load(slope, at))
    in_fours = d // 4 * 4
    for k in range(0, in_fours, 4):  # columns, in registers
        sum0 = sum1 = sum2 = sum3 = zero
        for strip in range(n_strips):
            row = (strip * d + k) * lanes
            z0, z1 = load(z, row), load(z, row + lanes)
            z2, z3 = load(z, row + 2 * lanes), load(z, row + 3 * lanes)
            for j in range(min((strip + 1) * lanes, s)):
                column = (j // lanes * d + k) * lanes + j % lanes
                weight = load(slope, strip * stride + j * lanes)
                d0 = z0 - like(zero, z[column])
                d1 = z1 - like(zero, z[column + lanes])
                d2 = z2 - like(zero, z[column + 2 * lanes])
                d3 = z3 - like(zero, z[column + 3 * lanes])
                sum0 = fma(weight, d0 * d0, sum0)
                sum1 = fma(weight, d1 * d1, sum1)
                sum2 = fma(weight, d2 * d2, sum2)
                sum3 = fma(weight, d3 * d3, sum3)
        store(sums, k * lanes, sum0)
        store(sums, (k + 1) * lanes, sum1)
        store(sums, (k + 2) * lanes, sum2)
        store(sums, (k + 3) * lanes, sum3)
    for k in range(in_fours, d):
        total = zero
        for strip in range(n_strips):
            own = load(z, (strip * d + k) * lanes)
            for j in range(min((strip + 1) * lanes, s)):
                difference = own - like(zero, z[(j // lanes * d + k) * lanes + j % lanes])
                total = fma(load(slope, strip * stride + j * lanes), difference * difference, total)
        store(sums, k * lanes, total)


@jit
def _chain_rule(kernel, along_K, s, G, slope, z, lengthscale, kernel_variance, noise_variance, sums, gradient, noise):
    """Derivatives in (l_1 … l_d, σ_f², σ_ξ²) from G = dloss/dK (lower triangle, in strips) and along_K = ΣG_ij K_ij."""
    d = len(lengthscale)
    lanes = _LANES
    n_strips = -(-s // lanes)
    stride = n_strips * lanes * lanes
    by_noise = 0.0
    for i in range(s):
        along_own = G[(i // lanes) * stride + i * lanes + i % lanes]
        if noise is None:
            by_noise += along_own
        else:  # what is known of the noise does not change with θ
            by_noise += along_own * noise[i, 0]
            along_K -= along_own * noise[i, 1]
    _sum_squares(s, G, slope, z, d, sums)
    for k in range(d):
        gradient[k] = -kernel_variance * sum_lanes(load(sums, k * lanes)) / lengthscale[k]
    gradient[d] = (along_K - noise_variance * by_noise) / kernel_variance  # dK/dσ_f² = (K − σ_ξ²I)/σ_f²
    gradient[d + 1] = by_noise


def scratch(s: int, d: int):
    padded = -(-s // _LANES) * _LANES
    sizes = (padded * (2 * padded + _LANES), padded**2, padded * d, padded, d * _LANES)
    return tuple(aligned(size, np.float64) for size in sizes)
