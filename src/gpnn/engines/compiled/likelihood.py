"""Likelihoods of a few rows, with their gradients in every lengthscale: of all of them, or of one given the others."""

import numpy as np
from numba.extending import overload

from gpnn.engines.compiled import aligned, inline, jit
from gpnn.engines.compiled.cholesky import factor, minus_inverse, solve_transposed
from gpnn.engines.compiled.covariance import covariance, farther, is_sum, no_distance
from gpnn.engines.compiled.vectors import LANES, fma, like, load, store, sum_lanes

_LANES = LANES[np.dtype(np.float64)]


@inline
def _put(kernel, r2, kernel_variance, A, slope, at, size):
    g, dc = covariance(kernel, r2)
    store(A, at, like(g, kernel_variance) * (like(g, 1.0) - g))
    if len(slope) > 0:
        _keep(kernel, slope, at, size, dc)


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
            _put(kernel, r0, kernel_variance, A, slope, at, right)
            _put(kernel, r1, kernel_variance, A, slope, at + lanes, right)
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
def predictive_likelihood(
    kernel, X, y, lengthscale, kernel_variance, noise_variance, A, slope, z, beta, sums, gradient, outcome, innovations,
    share, typical, noise=None, pull=None,
):  # fmt: skip
    """l* = ½(log 2πσ*² + (y* − μ*)²/σ*²) of the last of the rows X (s, d), y (s,), predicted from the others.

    With p = K⁻¹e and a = K⁻¹y for all s rows, e the last unit vector: σ*² = 1/p* and y* − μ* = a*/p*, where * is the
    last element. `outcome` gets y* − μ* and σ*², `innovations` (s − 1,) what the others said of each other (see
    `LocalSolution`), and `pull` (s, d), if it is given, dl*/dz of every row in lengthscales. Arguments and results
    otherwise as for `block_likelihood`; where `gradient` has no room, none is made.

    With share < 1, the likelihood is that of y/c, where c² is the neighbourhood's own scale (see `LocalScale`), taken
    as given: rows where the data are rough or noisy then weigh as much as the others, not more.
    """
    s = len(X)
    lanes = _LANES
    n_strips = -(-s // lanes)
    stride = n_strips * lanes * lanes
    block_covariance(kernel, X, y, lengthscale, kernel_variance, noise_variance, A, slope, z, noise)
    A[n_strips * stride + (s - 1) * lanes + 1] = 1.0
    if not factor(A, n_strips, lanes, stride, 0.0):
        return np.inf
    for i in range(s - 1):
        innovations[i] = A[n_strips * stride + i * lanes] ** 2
    if len(gradient) == 0:  # of Lᵀp = L⁻¹e and Lᵀa = L⁻¹y, the last elements come first
        inverse = A[(s - 1) // lanes * stride + (s - 1) * lanes + (s - 1) % lanes]
        precision = inverse * inverse
        error = A[n_strips * stride + (s - 1) * lanes] * inverse / precision
        outcome[0], outcome[1] = error, 1 / precision
        return 0.5 * (error**2 * precision - np.log(precision) + np.log(2 * np.pi))
    p = np.empty(n_strips * lanes)
    a = beta
    solve_transposed(A, n_strips, lanes, stride, a, p)

    precision = p[s - 1]
    outcome[0], outcome[1] = a[s - 1] / precision, 1 / precision
    if share < 1.0 and s > 2:
        local = 0.0
        for i in range(1, s - 1):
            local += innovations[i]
        shrink = 1 / np.sqrt((1 - share) * local / ((s - 2) * typical) + share)
        for i in range(n_strips * lanes):
            a[i] *= shrink
    error = a[s - 1] / precision
    z_squared = error * error * precision
    for strip in range(n_strips):  # dloss/dK = ½(σ*² + (y* − μ*)²)ppᵀ − ½(y* − μ*)(paᵀ + apᵀ)
        own_p = load(p, strip * lanes)
        own_a = load(a, strip * lanes)
        by_p = like(own_p, 0.5 * (1 / precision + error * error)) * own_p - like(own_p, 0.5 * error) * own_a
        by_a = like(own_p, -0.5 * error) * own_p
        for j in range((strip + 1) * lanes):
            store(A, strip * stride + j * lanes, fma(by_p, like(own_p, p[j]), by_a * like(own_p, a[j])))
    _chain_rule(
        kernel, 0.5 * (1 - z_squared), s, A, slope, z, lengthscale, kernel_variance, noise_variance, sums, gradient,
        noise,
    )  # fmt: skip
    if pull is not None:
        _pulls(slope, z, kernel_variance, pull)
    return 0.5 * (z_squared - np.log(precision) + np.log(2 * np.pi))


@jit
def predictive_likelihoods(
    kernel, X_star, y_star, rows, y, neighbors, lengthscale, kernel_variance, noise_variance,
    A, slope, z, beta, sums, gradient, outcomes, innovations, share=1.0, typical=1.0, noise_star=None, noise=None,
):  # fmt: skip
    """Sum of `predictive_likelihood` over queries X_star (q, d), each given the rows that neighbors (q, m) names.

    noise_star (q, 2), noise (n, 2): of the queries and of the rows, as `block_covariance` says.

    `gradient` gets the sum of the gradients, `outcomes` (q, 2) and `innovations` (q, m) what each query had. Queries
    whose K is not positive definite are passed over; the number of the others is returned too. Without room in
    `gradient` and `slope`, predictions are made, and no gradient.
    """
    queries, m = neighbors.shape
    d = rows.shape[1]
    X = np.empty((m + 1, d))
    t = np.empty(m + 1)
    own = np.empty(len(gradient))
    local_noise = None if noise is None else np.empty((m + 1, 2))
    gradient[:] = 0.0
    total = 0.0
    count = 0
    for q in range(queries):
        for i in range(m):
            t[i] = y[neighbors[q, i]]
            for k in range(d):
                X[i, k] = rows[neighbors[q, i], k]
        if noise is not None:
            for i in range(m):
                local_noise[i] = noise[neighbors[q, i]]
            local_noise[m] = noise_star[q]
        t[m] = y_star[q]
        for k in range(d):
            X[m, k] = X_star[q, k]
        loss = predictive_likelihood(
            kernel, X, t, lengthscale, kernel_variance, noise_variance, A, slope, z, beta, sums, own, outcomes[q],
            innovations[q], share, typical, local_noise,
        )  # fmt: skip
        if np.isfinite(loss):
            total += loss
            count += 1
            for k in range(len(gradient)):
                gradient[k] += own[k]
    return total, count


@jit
def predictive_pulls(
    kernel, Z, T, kernel_variance, noise_variance, A, slope, z, beta, sums, gradient, innovations, pulls, share,
    typical, noise=None,
):  # fmt: skip
    """Of l* of the last of each query's rows Z (q, s, d), T (q, s), in lengthscales: `pulls` (q, s, d) gets its
    derivatives in where the rows lie, `gradient` the sums of those in (…, σ_f², σ_ξ²). From pulls follows the gradient
    in whatever map the rows went through. Queries whose K is not positive definite have none; the number of the others
    is returned."""
    queries, _, d = Z.shape
    ones = np.ones(d)
    own = np.empty(d + 2)
    outcome = np.empty(2)
    gradient[:] = 0.0
    count = 0
    for q in range(queries):
        loss = predictive_likelihood(
            kernel, Z[q], T[q], ones, kernel_variance, noise_variance, A, slope, z, beta, sums, own, outcome,
            innovations[q], share, typical, None if noise is None else noise[q], pulls[q],
        )  # fmt: skip
        if np.isfinite(loss):
            count += 1
            gradient += own
        else:
            pulls[q] = 0.0
    return count


@jit
def _pulls(weights, z, kernel_variance, pull):
    """dloss/dz_i = 4σ_f² Σ_j G_ij c'_ij (z_i − z_j), from what `_chain_rule` left in place of the slopes."""
    s, d = pull.shape
    lanes = _LANES
    n_strips = -(-s // lanes)
    stride = n_strips * lanes * lanes
    zero = like(load(z, 0), 0.0)
    W = np.empty(n_strips * stride)  # all of the weights, above the diagonal too
    for strip in range(n_strips):
        for j in range((strip + 1) * lanes):
            at = strip * stride + j * lanes
            below = j < strip * lanes
            store(W, at, like(zero, (1 if below else 2) * kernel_variance) * load(weights, at))
            if below:
                for lane in range(lanes):
                    W[j // lanes * stride + (strip * lanes + lane) * lanes + j % lanes] = W[at + lane]
    force = np.empty(lanes)
    for strip in range(n_strips):
        for k in range(d):
            own = load(z, (strip * d + k) * lanes)
            total = zero
            for j in range(s):
                difference = own - like(zero, z[(j // lanes * d + k) * lanes + j % lanes])
                total = fma(load(W, strip * stride + j * lanes), difference, total)
            store(force, 0, total)
            for lane in range(min(lanes, s - strip * lanes)):
                pull[strip * lanes + lane, k] = force[lane]


def _keep(kernel, slope, at, size, dc):
    """Slopes of a vector of pairs; of a sum of kernels all three, each in `size` numbers."""
    raise NotImplementedError


@overload(_keep)
def _keep_slopes(kernel, slope, at, size, dc):
    if is_sum(kernel):

        def of_sum(kernel, slope, at, size, dc):
            store(slope, at, dc[0])
            store(slope, size + at, dc[1])
            store(slope, 2 * size + at, dc[2])

        return of_sum
    return lambda kernel, slope, at, size, dc: store(slope, at, dc)


def _broad_part(kernel, s, G, slope, z, lengthscale, kernel_variance, sums, gradient):
    """For a sum of kernels, derivatives in (…, L_1 … L_d, share) of its second part."""
    raise NotImplementedError


@overload(_broad_part)
def _of_broad_part(kernel, s, G, slope, z, lengthscale, kernel_variance, sums, gradient):
    if not is_sum(kernel):
        return lambda kernel, s, G, slope, z, lengthscale, kernel_variance, sums, gradient: None

    def of_sum(kernel, s, G, slope, z, lengthscale, kernel_variance, sums, gradient):
        d = len(lengthscale)
        size = (-(-s // _LANES) * _LANES) ** 2
        _sum_squares(s, G, slope[size:], z, d, sums)
        for k in range(d):
            factor = kernel[3][k]  # (l_k/L_k)²
            by_factor = kernel_variance * sum_lanes(load(sums, k * _LANES))
            gradient[d + 2 + k] = -by_factor * factor * np.sqrt(factor) / lengthscale[k]
        gradient[2 * d + 2] = kernel_variance * _sum_products(s, G, slope[2 * size :])

    return of_sum


@jit
def _sum_products(s, G, of):
    """Σ G_ij of_ij over all pairs, from lower triangles."""
    lanes = _LANES
    n_strips = -(-s // lanes)
    stride = n_strips * lanes * lanes
    total = like(load(G, 0), 0.0)
    for strip in range(n_strips):
        for j in range(min((strip + 1) * lanes, s)):
            at = strip * stride + j * lanes
            twice = 1.0 if j >= strip * lanes else 2.0
            total = fma(like(total, twice) * load(G, at), load(of, at), total)
    return sum_lanes(total)


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
    """Derivatives in (l_1 … l_d, σ_f², σ_ξ²) from G = dloss/dK (lower triangle, in strips) and along_K = ΣG_ij K_ij;
    for a sum of kernels also in those of its second part."""
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
    _broad_part(kernel, s, G, slope, z, lengthscale, kernel_variance, sums, gradient)


def scratch(s: int, d: int, n_slopes: int = 1):
    """n_slopes: 3 for a sum of kernels."""
    padded = -(-s // _LANES) * _LANES
    sizes = (padded * (2 * padded + _LANES), n_slopes * padded**2, padded * d, padded, d * _LANES)
    return tuple(aligned(size, np.float64) for size in sizes)
