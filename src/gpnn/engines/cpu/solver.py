"""The local systems in compiled code: one query at a time per thread, everything in the core's own cache.

Instead of K_N, which is close to singular when σ_f² ≫ σ_ξ² (its near-constant part dwarfs the rest), the value f* at
the query is taken out first. With h = k*_N/σ_f² and everything divided by σ_f²,

    y_N = h·f* + e,    e ~ N(0, σ_f² A),    A = C − hhᵀ + (σ_ξ²/σ_f²) I

and conditioning f* on y_N gives equations 6 and 7 in a form without cancellation:

    precision = 1 + hᵀA⁻¹h,   μ* = hᵀA⁻¹y_N / precision,   σ*² = σ_f²/precision + σ_ξ².

The entries of C − hhᵀ come from g = 1 − c, which is computed accurately for near rows: C_ij − h_i h_j =
g_i + g_j − g_ij − g_i g_j. The mean of y_N is taken out too, since μ* is linear in y_N. In this form float32 is enough
for most data; the rounding error is estimated for each query, and where it could matter, float64 takes over.

With L the factor of A, row i of L⁻¹y_N is a new observation of f*, (L⁻¹h)_i f* + noise of variance σ_f²; how far it
lies from what the rows before it say of f* is the innovation of neighbour i.
"""

from threading import local

import numpy as np
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters
from gpnn.engines.compiled import aligned, inline, jit
from gpnn.engines.compiled.cholesky import factor, solve_transposed
from gpnn.engines.compiled.cholesky import solve as solve_right
from gpnn.engines.compiled.covariance import KERNEL_TAGS, as_compiled, covariance, farther, no_distance
from gpnn.engines.compiled.vectors import LANES, like, load, store
from gpnn.engines.local import EPSILON, JITTERS, LOWEST_PIVOT, TOLERANCE, LocalSolution, rounding


@inline
def _amplification(A, g, ratio, m, n_strips, lanes, stride):
    """Σ A_ii v_i² and Σ A_ii w_i² for v = A⁻¹h and w = A⁻¹(y − center·h), from what `factor` left.

    The factor is exact for a matrix A + E with |E_ij| of the order of ε√(A_ii A_jj), which moves hᵀA⁻¹y by vᵀEw and
    hᵀA⁻¹h by vᵀEv.
    """
    v = np.empty(n_strips * lanes, A.dtype)
    w = np.empty(n_strips * lanes, A.dtype)
    solve_transposed(A, n_strips, lanes, stride, v, w)
    weights = 0.0
    residuals = 0.0
    for i in range(m):
        diagonal = g[i] * (2 - g[i]) + ratio[i]
        weights += diagonal * v[i] * v[i]
        residuals += diagonal * w[i] * w[i]
    return weights, residuals


@inline
def _solve_one(kernel_tag, x, N, y, inverse_lengthscale, ratio, A, z, g, lanes, sizes, mean, shrinkage, innovations):
    """The rounding errors of mean and 1/precision of one query, whose values go to `mean` and `shrinkage`: one for each
    of `sizes`, from that many of the nearest rows. Those are NaN if A is not positive definite. `innovations` (m,) gets
    each neighbour's, times σ_f².

    ratio (m,): the noise of each neighbour over σ_f². A, z and g are scratch: the matrix, the scaled differences N − x
    and g(|z|²), all in strips.
    """
    m, d = N.shape
    n_strips = -(-m // lanes)
    padded = n_strips * lanes
    stride = padded * lanes
    for i in range(padded):
        at = (i // lanes) * d * lanes + i % lanes
        for k in range(d):
            z[at + k * lanes] = (N[i, k] - x[k]) * inverse_lengthscale[k] if i < m else A.dtype.type(0)

    center = 0.0
    for i in range(m):
        center += y[i] / m
    right = n_strips * stride
    for s in range(n_strips):
        row = s * d * lanes
        zero = like(load(z, row), 0.0)
        r2 = no_distance(kernel_tag, zero)
        for k in range(d):
            r2 = farther(kernel_tag, r2, load(z, row + k * lanes), k)
        gi = covariance(kernel_tag, r2)[0]
        store(g, s * lanes, gi)
        for j in range(0, (s + 1) * lanes, 2):  # two columns at a time
            column = (j // lanes) * d * lanes + j % lanes
            r0 = no_distance(kernel_tag, zero)
            r1 = no_distance(kernel_tag, zero)
            for k in range(d):
                zi = load(z, row + k * lanes)
                r0 = farther(kernel_tag, r0, zi - like(zero, z[column + k * lanes]), k)
                r1 = farther(kernel_tag, r1, zi - like(zero, z[column + k * lanes + 1]), k)
            g0 = like(zero, g[j])
            g1 = like(zero, g[j + 1])
            at = s * stride + j * lanes
            store(A, at, (g0 + gi - g0 * gi) - covariance(kernel_tag, r0)[0])
            store(A, at + lanes, (g1 + gi - g1 * gi) - covariance(kernel_tag, r1)[0])
        for lane in range(lanes):
            i = s * lanes + lane
            store(A, right + i * lanes, zero)
            if i < m:
                A[s * stride + i * lanes + lane] += ratio[i]
                h = 1 - g[i]
                A[right + i * lanes] = h
                A[right + i * lanes + 1] = y[i] - center * h
            else:  # padding: a row of the identity
                for j in range(i):
                    A[s * stride + j * lanes + lane] = 0
                A[s * stride + i * lanes + lane] = 1

    if not factor(A, n_strips, lanes, stride, LOWEST_PIVOT):
        mean[:] = np.nan
        shrinkage[:] = np.nan
        return np.nan, np.nan
    precision = 1.0
    product = 0.0
    done = 0
    for i in range(m):  # row i of L⁻¹ sees rows up to i only: each partial sum is the answer for that many neighbours
        a = np.float64(A[right + i * lanes])  # L⁻¹h
        b = np.float64(A[right + i * lanes + 1])  # L⁻¹(y − center·h)
        surprise = b - a * (product - center) / precision  # what rows up to i say of f* − center
        innovations[i] = surprise * surprise * precision / (precision + a * a)
        precision += a * a
        product += a * b
        while done < len(sizes) and sizes[done] == i + 1:
            # eq. 6; hᵀA⁻¹(center·h) = center·(precision − 1)
            mean[done] = (product + center * (precision - 1)) / precision
            shrinkage[done] = 1 / precision
            done += 1
    mean_error = 0.0
    variance_error = 0.0
    if A.itemsize == 4:
        spread = 0.0
        for i in range(m):
            spread = max(spread, abs(y[i] - center))
        weights, residuals = _amplification(A, g, ratio, m, n_strips, lanes, stride)
        mean_error = EPSILON * (np.sqrt(weights * residuals) / precision + 2 * (abs(center) + spread))
        variance_error = EPSILON * weights / (precision * precision)
    return mean_error, variance_error


@jit
def _solve_block(
    kernel_tag,
    X_star,
    neighbors,
    y,
    inverse_lengthscale,
    ratio,
    mask,
    A,
    z,
    g,
    lanes,
    sizes,
    mean,
    shrinkage,
    innovations,
    errors,
):
    for q in range(len(X_star)):
        if mask[q]:
            errors[0, q], errors[1, q] = _solve_one(
                kernel_tag, X_star[q], neighbors[q], y[q], inverse_lengthscale, ratio[q], A, z, g, lanes,
                sizes, mean[q], shrinkage[q], innovations[q],
            )  # fmt: skip


def solve(
    X_star: Array, neighbors: Array, y_neighbors: Array, kernel: Kernel, params: Hyperparameters
) -> LocalSolution:
    sizes = np.array([neighbors.shape[1]])
    mean, variance, jitter, innovations = solve_path(X_star, neighbors, y_neighbors, kernel, params, sizes)
    return LocalSolution(mean[:, 0], variance[:, 0], jitter, innovations)


@jit
def _weights_block(kernel_tag, X_star, neighbors, y, inverse_lengthscale, ratio, mask, A, z, g, lanes, sizes, weights):
    n_strips = -(-neighbors.shape[1] // lanes)
    v = np.empty(n_strips * lanes, A.dtype)
    w = np.empty(n_strips * lanes, A.dtype)
    mean = np.empty(1)
    shrinkage = np.empty(1)
    innovations = np.empty(neighbors.shape[1])
    for q in range(len(X_star)):
        if mask[q]:
            _solve_one(
                kernel_tag, X_star[q], neighbors[q], y[q], inverse_lengthscale, ratio[q], A, z, g, lanes,
                sizes, mean, shrinkage, innovations,
            )  # fmt: skip
            if np.isfinite(shrinkage[0]):  # A⁻¹h is in what `factor` left
                solve_transposed(A, n_strips, lanes, n_strips * lanes * lanes, v, w)
            for i in range(neighbors.shape[1]):
                weights[q, i] = v[i] * shrinkage[0]


def local_weights(
    X_star: Array, neighbors: Array, kernel: Kernel, params: Hyperparameters, noise: Array | None = None
) -> Array:
    """What each neighbour's y is multiplied by in μ* (q, m): A⁻¹h / precision, in float64. Arguments as for
    `solve_path`."""
    queries, m, d = neighbors.shape
    weights = np.full((queries, m), np.nan)
    for extra in JITTERS:
        failed = np.isnan(weights[:, -1]) if m else np.zeros(queries, bool)
        if not failed.any():
            return weights
        _weights_block(
            _tag(kernel, params, d), *(np.ascontiguousarray(rows, np.float64) for rows in (X_star, neighbors)),
            np.zeros((queries, m)), _inverse(params.lengthscale, d, np.float64),
            _ratios(params, noise, (queries, m)) + extra, failed, *_scratch(m, d, np.float64), np.array([m]), weights,
        )  # fmt: skip
    raise np.linalg.LinAlgError("a local covariance matrix is not positive definite, even with jitter")


def _ratios(params: Hyperparameters, noise: Array | None, shape: tuple[int, int]) -> Array:
    """Of each neighbour's noise to σ_f²."""
    return np.full(shape, params.noise_variance if noise is None else noise) / params.kernel_variance


def solve_path(
    X_star: Array,
    neighbors: Array,
    y_neighbors: Array,
    kernel: Kernel,
    params: Hyperparameters,
    sizes: NDArray,
    noise: Array | None = None,
) -> LocalSolution:
    """Means and variances (q, k) from the nearest sizes[0] < … < sizes[k−1] of the neighbours, for the price of one.

    noise (q, m): the variance of each neighbour's noise; None: σ_ξ² for all."""
    tag = _tag(kernel, params, neighbors.shape[2])
    queries, m, d = neighbors.shape
    mean, shrinkage = np.zeros((2, queries, len(sizes)))
    innovations = np.zeros((queries, m))
    jitter, errors = np.zeros(queries), np.zeros((2, queries))
    ratios = _ratios(params, noise, (queries, m))

    def attempt(dtype, mask, extra=0.0):
        _solve_block(
            tag, *(np.ascontiguousarray(rows, dtype) for rows in (X_star, neighbors)), y_neighbors,
            _inverse(params.lengthscale, d, dtype), (ratios + extra).astype(dtype), mask, *_scratch(m, d, dtype),
            sizes, mean, shrinkage, innovations, errors,
        )  # fmt: skip

    attempt(np.float32, np.ones(queries, dtype=bool))
    _again_where_inaccurate(attempt, errors, shrinkage[:, -1], jitter, kernel, params)
    innovations /= params.kernel_variance
    return LocalSolution(mean, params.kernel_variance * shrinkage + params.noise_variance, jitter, innovations)


@jit
def _solve_targets_block(
    kernel_tag, X_star, neighbors, numbers, Y, inverse_lengthscale, ratio, mask, A, z, g, lanes, B, sizes, mean,
    shrinkage, innovations, errors,
):  # fmt: skip
    """`_solve_block` for several targets: columns of Y (n, k), of which each query has the rows `numbers` (q, m). The
    factor is made once. mean (q, k), shrinkage (q, s), innovations (q, k, kept)."""
    m, k = neighbors.shape[1], Y.shape[1]
    kept = innovations.shape[2]
    n_strips = -(-m // lanes)
    stride = n_strips * lanes * lanes
    right = n_strips * stride
    n_right = -(-k // lanes)
    y = np.empty(m)
    one_mean = np.empty(len(sizes))
    first = np.empty(m)
    for q in range(len(X_star)):
        if not mask[q]:
            continue
        spread = 0.0
        for i in range(m):
            y[i] = Y[numbers[q, i], 0]
        errors[0, q], errors[1, q] = _solve_one(
            kernel_tag, X_star[q], neighbors[q], y, inverse_lengthscale, ratio[q], A, z, g, lanes,
            sizes, one_mean, shrinkage[q], first,
        )  # fmt: skip
        if not np.isfinite(shrinkage[q, -1]):
            continue
        zero = like(load(A, 0), 0.0)
        for strip in range(n_right):
            for i in range(n_strips * lanes):
                store(B, strip * stride + i * lanes, zero)
            for lane in range(min(lanes, k - strip * lanes)):
                for i in range(m):
                    B[strip * stride + i * lanes + lane] = Y[numbers[q, i], strip * lanes + lane]
        solve_right(A, n_strips, lanes, stride, B, n_right)
        largest = 0.0
        for t in range(k):
            at = (t // lanes) * stride + t % lanes
            precision = 1.0
            product = 0.0
            for i in range(m):
                a = np.float64(A[right + i * lanes])
                b = np.float64(B[at + i * lanes])
                surprise = b - a * product / precision
                if i < kept:
                    innovations[q, t, i] = surprise * surprise * precision / (precision + a * a)
                precision += a * a
                product += a * b
                largest = max(largest, abs(Y[numbers[q, i], t]))
            mean[q, t] = product / precision
        for i in range(m):
            spread = max(spread, abs(y[i]))
        if A.itemsize == 4:  # estimated for the first target; the others are as large, or this much larger
            errors[0, q] *= max(1.0, largest / max(spread, 1e-30))


def solve_targets(
    X_star: Array,
    neighbors: Array,
    numbers: NDArray,
    Y: Array,
    kernel: Kernel,
    params: Hyperparameters,
    sizes: NDArray,
    n_innovations: int,
    noise: Array | None = None,
) -> LocalSolution:
    """Means (q, k) of several targets Y (n, k) from rows `numbers` (q, m) that lie at `neighbors` (q, m, d), and the
    variances (q, s) that all have in common, from the nearest sizes[0] < … < sizes[s − 1] = m of these: one factor for
    all. Innovations (q, k, n_innovations)."""
    queries, m, d = neighbors.shape
    k = Y.shape[1]
    mean, shrinkage = np.zeros((queries, k)), np.zeros((queries, len(sizes)))
    innovations = np.zeros((queries, k, n_innovations))
    jitter, errors = np.zeros(queries), np.zeros((2, queries))
    ratios = _ratios(params, noise, (queries, m))

    def attempt(dtype, mask, extra=0.0):
        *scratch, lanes = _scratch(m, d, dtype)
        padded = -(-m // lanes) * lanes
        _solve_targets_block(
            _tag(kernel, params, d), *(np.ascontiguousarray(rows, dtype) for rows in (X_star, neighbors)), numbers, Y,
            _inverse(params.lengthscale, d, dtype), (ratios + extra).astype(dtype), mask, *scratch, lanes,
            aligned(-(-k // lanes) * lanes * padded, dtype), sizes, mean, shrinkage, innovations, errors,
        )  # fmt: skip

    attempt(np.float32, np.ones(queries, dtype=bool))
    _again_where_inaccurate(attempt, errors, shrinkage[:, -1], jitter, kernel, params)
    variance = params.kernel_variance * shrinkage + params.noise_variance
    return LocalSolution(mean, variance, jitter, innovations / params.kernel_variance)


def _again_where_inaccurate(attempt, errors, shrinkage, jitter, kernel: Kernel, params: Hyperparameters) -> None:
    """In float64, and where that is singular with jitter."""
    variance = params.kernel_variance * shrinkage + params.noise_variance
    for_mean, for_variance = (TOLERANCE / factor for factor in rounding(kernel))
    accurate = errors[0] <= for_mean * np.sqrt(variance)
    accurate &= params.kernel_variance * errors[1] <= for_variance * variance
    failed = ~accurate  # comparisons with NaN are False
    for extra in JITTERS:
        if not failed.any():
            return
        jitter[failed] = extra
        attempt(np.float64, failed, extra)
        failed = np.isnan(shrinkage)
    if failed.any():
        raise np.linalg.LinAlgError("a local covariance matrix is not positive definite, even with jitter")


def _tag(kernel: Kernel, params: Hyperparameters, d: int):
    return as_compiled(kernel, params, d, KERNEL_TAGS)


def _inverse(lengthscale, d: int, dtype) -> Array:
    inverse = np.empty(d, dtype)
    inverse[:] = 1 / np.asarray(lengthscale, dtype=float)
    return inverse


_OF_THIS_THREAD = local()


def _scratch(m: int, d: int, dtype):
    """Aligned work arrays for one system, and the number of lanes.

    A thread that goes on with systems of the same size goes on with the same arrays: they are in its cache, and for a
    single row making them would take as long as using them.
    """
    kept, name = vars(_OF_THIS_THREAD), np.dtype(dtype).name
    if name not in kept or kept[name][0] != (m, d):
        lanes = LANES[np.dtype(dtype)]
        padded = -(-m // lanes) * lanes
        arrays = (aligned(size, dtype) for size in ((padded + lanes) * padded, padded * d, padded))
        kept[name] = (m, d), (*arrays, lanes)
    return kept[name][1]
