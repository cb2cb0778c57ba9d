"""Probes, each predicted from its nearest rows, and the gradient of their likelihood: as many abreast as a register has
lanes."""

import numpy as np
from numba.extending import overload

from gpnn.engines.compiled import jit
from gpnn.engines.compiled.abreast import BLOCK, factor, fill, row_at, solve_transposed, step_of
from gpnn.engines.compiled.covariance import is_sum
from gpnn.engines.compiled.vectors import fma, lanes_of, less, like, nth, put, sqrt, sum_lanes, where_less


@jit
def _slopes(s, A, slope, noise, share, typical, found):
    """G = dl*/dK of l* = ½(log 2πσ*² + (y* − μ*)²/σ*²), for the last row given the others: below the diagonal, in K's
    place, and times 4dc/d(r²) in the latter's. `found` gets, as vectors, each lane's smallest pivot, the sum of
    innovations, ΣG_ij K_ij without what is known of the noise, and dl*/dσ_ξ².

    With p = K⁻¹e and a = K⁻¹y, e the last unit vector: σ*² = 1/p* and y* − μ* = a*/p*, where * is the last element.
    """
    padded = -(-s // BLOCK) * BLOCK
    v, w = row_at(padded), row_at(padded + 1)
    last = s - 1
    factor(A, s, found)
    one = like(nth(A, 0), 1.0)
    zero = like(one, 0.0)
    innovations = zero
    for i in range(1, s - 1):
        own = nth(A, v + i)
        innovations = fma(own, own, innovations)
    put(found, 1, innovations)
    solve_transposed(A, s)
    shrink = one
    if share < 1.0 and s > 2:
        shrink = one / sqrt(fma(innovations, like(one, (1 - share) / ((s - 2) * typical)), like(one, share)))
    variance = one / nth(A, w + last)
    error = nth(A, v + last) * shrink * variance
    half = like(one, 0.5)
    by_p = half * fma(error, error, variance)
    by_a = half * error * shrink
    along = half * less(one, error * error, nth(A, w + last))
    by_noise = zero
    for i in range(s):  # G = ½(σ*² + (y* − μ*)²)ppᵀ − ½(y* − μ*)(paᵀ + apᵀ)
        own_p = nth(A, w + i)
        to_p = less(by_p * own_p, by_a, nth(A, v + i))
        to_a = zero - by_a * own_p
        row = row_at(i)
        for j in range(i):
            G = fma(to_p, nth(A, w + j), to_a * nth(A, v + j))
            put(A, row + j, G)
            put(slope, row + j, like(one, 4.0) * G * nth(slope, row + j))
        G = fma(to_p, own_p, to_a * nth(A, v + i))
        by_noise = fma(G, nth(noise, 2 * i), by_noise)
        along = less(along, G, nth(noise, 2 * i + 1))
    put(found, 2, along)
    put(found, 3, by_noise)


@jit
def _of_good(found, x):
    """The sum of a vector's lanes, without those whose matrix was not positive definite."""
    zero = like(x, 0.0)
    return sum_lanes(where_less(zero, nth(found, 0), x, zero))


@jit
def _add_squares(s, d, weights, z, found, sums):
    """sums (d,) += Σ w_ij (z_ik − z_jk)² over pairs, and over lanes."""
    zero = like(nth(z, 0), 0.0)
    step = step_of(d)
    in_fours = d // 4 * 4
    for k in range(0, in_fours, 4):  # columns, in registers
        sum0 = sum1 = sum2 = sum3 = zero
        for i in range(1, s):
            own = i * step + k
            z0, z1 = nth(z, own), nth(z, own + 1)
            z2, z3 = nth(z, own + 2), nth(z, own + 3)
            row = row_at(i)
            for j in range(i):
                column = j * step + k
                weight = nth(weights, row + j)
                d0 = z0 - nth(z, column)
                d1 = z1 - nth(z, column + 1)
                d2 = z2 - nth(z, column + 2)
                d3 = z3 - nth(z, column + 3)
                sum0 = fma(weight, d0 * d0, sum0)
                sum1 = fma(weight, d1 * d1, sum1)
                sum2 = fma(weight, d2 * d2, sum2)
                sum3 = fma(weight, d3 * d3, sum3)
        sums[k] += _of_good(found, sum0)
        sums[k + 1] += _of_good(found, sum1)
        sums[k + 2] += _of_good(found, sum2)
        sums[k + 3] += _of_good(found, sum3)
    for k in range(in_fours, d):
        total = zero
        for i in range(1, s):
            zi = nth(z, i * step + k)
            row = row_at(i)
            for j in range(i):
                difference = zi - nth(z, j * step + k)
                total = fma(nth(weights, row + j), difference * difference, total)
        sums[k] += _of_good(found, total)


@jit
def _put_rows(first, lane, X, y, noise, numbers, centre, scale, A, right, z, noises):
    """Rows of X, y and noise for a lane: what its probe is predicted from, or the probe itself. They are taken to lie
    about the centre, so that float32 tells near ones apart."""
    lanes, d = lanes_of(A), len(scale)
    for number, row in enumerate(numbers):
        i = first + number
        at = i * step_of(d) * lanes + lane
        for k in range(d):
            z[at + k * lanes] = (np.float64(X[row, k]) - centre[k]) * scale[k]
        A[(right + i) * lanes + lane] = y[row]
        at = 2 * i * lanes + lane
        noises[at] = 1.0 if noise is None else noise[row, 0]
        noises[at + lanes] = 0.0 if noise is None else noise[row, 1]


@jit
def _put_unit(s, A):
    """The right-hand sides: zeros, into which y will be put, and the last unit vector."""
    padded = -(-s // BLOCK) * BLOCK
    zero = like(nth(A, 0), 0.0)
    for at in range(row_at(padded), row_at(padded + 2)):
        put(A, at, zero)
    put(A, row_at(padded + 1) + s - 1, like(zero, 1.0))
    return row_at(padded)


@jit
def _count(found, used, s):
    """How many of the lanes in use have a matrix that is positive definite, and the sum of innovations. Others are
    marked as if theirs were not."""
    count, surprise, lanes = 0, 0.0, lanes_of(found)
    for lane in range(lanes):
        if lane >= used:
            found[lane] = -1.0
        elif found[lane] > 0:
            count += 1
            surprise += found[lanes + lane]
        else:
            surprise += s - 2
    return count, surprise


@jit
def predictive_laws(
    kernel, X_star, y_star, rows, y, neighbors, lengthscale, kernel_variance, noise_variance, A, z, noises, outcomes,
    innovations, noise_star=None, noise=None,
):  # fmt: skip
    """`outcomes` (q, 2) gets y* − μ* and σ*² of each query, `innovations` (q, m) what its neighbours said of each other
    (see `LocalSolution`); of those whose K is not positive definite, nothing. Arguments: see `predictive_gradient`."""
    n_queries, m = neighbors.shape
    queries = np.arange(n_queries)
    d = rows.shape[1]
    s = m + 1
    scale = 1 / lengthscale
    lanes = lanes_of(A)
    lowest = np.empty(lanes, A.dtype)
    for first in range(0, n_queries, lanes):
        used = min(lanes, n_queries - first)
        right = _put_unit(s, A)
        for lane in range(lanes):
            q = first + min(lane, used - 1)
            _put_rows(0, lane, rows, y, noise, neighbors[q], X_star[q], scale, A, right, z, noises)
            own = queries[q : q + 1]
            _put_rows(m, lane, X_star, y_star, noise_star, own, X_star[q], scale, A, right, z, noises)
        fill(kernel, s, d, z, noises, kernel_variance, noise_variance, A, None)
        factor(A, s, lowest)
        for lane in range(used):
            if lowest[lane] > 0:
                for i in range(m):
                    innovations[first + lane, i] = A[(right + i) * lanes + lane] ** 2
                inverse = A[(row_at(m) + m) * lanes + lane]
                outcomes[first + lane, 0] = A[(right + m) * lanes + lane] / inverse
                outcomes[first + lane, 1] = 1 / inverse**2


@jit
def predictive_gradient(
    kernel, chosen, X_star, y_star, rows, y, neighbors, lengthscale, kernel_variance, noise_variance, A, slope, z,
    noises, gradient, share=1.0, typical=1.0, noise_star=None, noise=None,
):  # fmt: skip
    """Of Σl* of those chosen of the queries X_star (q, d), each given the rows that neighbors (q, m) names, in
    (l_1 … l_d, σ_f², σ_ξ², …).

    noise_star (q, 2), noise (n, 2): of the queries and of the rows, as `block_covariance` says; scratch from
    `abreast.scratch`. With share < 1, the likelihood is that of y/c, where c² is the neighbourhood's own scale (see
    `LocalScale`), taken as given: rows where the data are rough or noisy then weigh as much as the others, not more.

    Queries whose K is not positive definite are passed over. Returns the number of the others, and the mean of all
    innovations but the first.
    """
    n_queries, d = len(chosen), rows.shape[1]
    s = neighbors.shape[1] + 1
    scale = 1 / lengthscale
    lanes = lanes_of(A)
    found = np.empty(4 * lanes, A.dtype)
    gradient[:] = 0.0
    surprise = 0.0
    count = 0
    for first in range(0, n_queries, lanes):
        used = min(lanes, n_queries - first)
        right = _put_unit(s, A)
        for lane in range(lanes):
            own = chosen[first + min(lane, used - 1) :][:1]
            q = own[0]
            _put_rows(0, lane, rows, y, noise, neighbors[q], X_star[q], scale, A, right, z, noises)
            _put_rows(s - 1, lane, X_star, y_star, noise_star, own, X_star[q], scale, A, right, z, noises)
        fill(kernel, s, d, z, noises, kernel_variance, noise_variance, A, slope)
        _slopes(s, A, slope, noises, share, typical, found)
        good, innovations = _count(found, used, s)
        count += good
        surprise += innovations
        _add_squares(s, d, slope, z, found, gradient)
        _add_broad_part(kernel, s, A, slope, z, d, found, gradient)
        _add_variances(d, kernel_variance, noise_variance, found, gradient)
    for k in range(d):
        gradient[k] *= -kernel_variance / lengthscale[k]
    _in_broad_lengthscales(kernel, lengthscale, kernel_variance, gradient)
    return count, surprise / max(1, n_queries * (s - 2))


@jit
def _add_variances(d, kernel_variance, noise_variance, found, gradient):
    by_noise = _of_good(found, nth(found, 3))  # dK/dσ_f² = (K − noise)/σ_f²
    gradient[d] += (_of_good(found, nth(found, 2)) - noise_variance * by_noise) / kernel_variance
    gradient[d + 1] += by_noise


@jit
def predictive_pulls(
    kernel, Z, T, kernel_variance, noise_variance, A, slope, z, noises, gradient, pulls, share, typical, noise=None
):
    """Of l* of the last of each query's rows Z (q, s, d), T (q, s), in lengthscales: `pulls` (q, s, d) gets its
    derivatives in where the rows lie, `gradient` the sums of those in (…, σ_f², σ_ξ²). From pulls follows the gradient
    in whatever map the rows went through. Returns what `predictive_gradient` does; noise (q, s, 2)."""
    queries, s, d = Z.shape
    zeros, ones, each = np.zeros(d), np.ones(d), np.arange(s)
    lanes = lanes_of(A)
    found = np.empty(4 * lanes, A.dtype)
    gradient[:] = 0.0
    surprise = 0.0
    count = 0
    for first in range(0, queries, lanes):
        used = min(lanes, queries - first)
        right = _put_unit(s, A)
        for lane in range(lanes):
            q = first + min(lane, used - 1)
            own_noise = None if noise is None else noise[q]
            _put_rows(0, lane, Z[q], T[q], own_noise, each, zeros, ones, A, right, z, noises)
        fill(kernel, s, d, z, noises, kernel_variance, noise_variance, A, slope)
        _slopes(s, A, slope, noises, share, typical, found)
        good, innovations = _count(found, used, s)
        count += good
        surprise += innovations
        _put_pulls(s, d, slope, z, kernel_variance, found, pulls[first : first + used])
        _add_variances(d, kernel_variance, noise_variance, found, gradient)
    return count, surprise / max(1, queries * (s - 2))


@jit
def _put_pulls(s, d, weights, z, kernel_variance, found, pulls):
    """dloss/dz_i = 4σ_f² Σ_j G_ij c'_ij (z_i − z_j)"""
    step = step_of(d)
    zero = like(nth(z, 0), 0.0)
    force = np.empty(lanes_of(z), z.dtype)
    for i in range(s):
        row = row_at(i)
        for k in range(d):
            own = nth(z, i * step + k)
            total = zero
            for j in range(i):
                total = fma(nth(weights, row + j), own - nth(z, j * step + k), total)
            for j in range(i + 1, s):
                total = fma(nth(weights, row_at(j) + i), own - nth(z, j * step + k), total)
            put(force, 0, where_less(zero, nth(found, 0), like(zero, kernel_variance) * total, zero))
            for lane in range(len(pulls)):
                pulls[lane, i, k] = force[lane]


def _add_broad_part(kernel, s, G, slope, z, d, found, gradient):
    """For a sum of kernels, what leads to derivatives in (…, L_1 … L_d, share) of its second part."""
    raise NotImplementedError


@overload(_add_broad_part)
def _add_of_broad_part(kernel, s, G, slope, z, d, found, gradient):
    if not is_sum(kernel):
        return lambda kernel, s, G, slope, z, d, found, gradient: None

    def of_sum(kernel, s, G, slope, z, d, found, gradient):
        size = row_at(-(-s // BLOCK) * BLOCK) * lanes_of(slope)
        broad, by_share = slope[size : 2 * size], slope[2 * size :]
        total = like(nth(z, 0), 0.0)
        four = like(total, 4.0)
        for i in range(1, s):
            row = row_at(i)
            for j in range(row, row + i):
                own = nth(G, j)
                total = fma(own, nth(by_share, j), total)
                put(broad, j, four * own * nth(broad, j))
        _add_squares(s, d, broad, z, found, gradient[d + 2 :])
        gradient[2 * d + 2] += 2 * _of_good(found, total)

    return of_sum


def _in_broad_lengthscales(kernel, lengthscale, kernel_variance, gradient):
    raise NotImplementedError


@overload(_in_broad_lengthscales)
def _in_those_of_broad_part(kernel, lengthscale, kernel_variance, gradient):
    if not is_sum(kernel):
        return lambda kernel, lengthscale, kernel_variance, gradient: None

    def of_sum(kernel, lengthscale, kernel_variance, gradient):
        d = len(lengthscale)
        for k in range(d):
            factor = kernel[3][k]  # (l_k/L_k)²
            gradient[d + 2 + k] *= -kernel_variance * factor * np.sqrt(factor) / lengthscale[k]
        gradient[2 * d + 2] *= kernel_variance

    return of_sum
