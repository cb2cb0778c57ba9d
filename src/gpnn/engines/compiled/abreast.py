"""Covariance matrices of a few rows each, abreast: as many at once as a register has lanes.

One such matrix alone would spend most of its time waiting: for the square root of a pivot, or for the sum of a vector's
lanes. Here each lane is a matrix of its own, and no lane waits for another.

Matrices are lower triangles in rows of whole blocks: row i has `BLOCK`·(i // BLOCK + 1) vectors, and two rows of
right-hand sides follow, so that they are solved for as the factor is made. All places are counted in vectors.
"""

import numpy as np
from numba.core import types
from numba.extending import overload

from gpnn.engines.compiled import aligned, inline, jit
from gpnn.engines.compiled.covariance import correlation, farther, is_sum, no_distance
from gpnn.engines.compiled.vectors import LANES, fma, less, like, nth, put, sqrt, where_less

BLOCK = 4


@inline
def row_at(i):
    """Where row i begins."""
    whole = i // BLOCK
    return BLOCK * (whole + 1) * (BLOCK * whole // 2 + i % BLOCK)


@inline
def step_of(d):
    """From one row of z to the next: an odd number of cache lines, or rows would drive each other out."""
    return d | 1


@inline
def _put_pair(kernel, r2, kernel_variance, A, slope, at, size):
    c, dc = correlation(kernel, r2)
    put(A, at, like(c, kernel_variance) * c)
    _keep(kernel, slope, at, size, dc)


@jit
def fill(kernel, s, d, z, noise, kernel_variance, noise_variance, A, slope):
    """K = σ_f²C + noise of rows z (s, d) of vectors, in lengthscales, and dc/d(r²). noise (s, 2): as vectors, of each
    row's share of σ_ξ² and what is known beside that."""
    padded = -(-s // BLOCK) * BLOCK
    size, step = row_at(padded), step_of(d)
    zero = like(nth(z, 0), 0.0)
    for i in range(s):
        own = i * step
        for j in range(0, i + 1, 2):  # two columns at a time: neither waits for the other
            column = j * step
            next_column = column + (step if j < i else 0)
            r0 = no_distance(kernel, zero)
            r1 = no_distance(kernel, zero)
            for k in range(d):
                zi = nth(z, own + k)
                r0 = farther(kernel, r0, zi - nth(z, column + k), k)
                r1 = farther(kernel, r1, zi - nth(z, next_column + k), k)
            at = row_at(i) + j
            _put_pair(kernel, r0, kernel_variance, A, slope, at, size)
            _put_pair(kernel, r1, kernel_variance, A, slope, at + 1, size)
        diagonal = row_at(i) + i
        own_noise = fma(nth(noise, 2 * i), like(zero, noise_variance), nth(noise, 2 * i + 1))
        put(A, diagonal, like(zero, kernel_variance) + own_noise)
    for i in range(s, padded):  # rows of the identity, which change nothing
        for j in range(i):
            put(A, row_at(i) + j, zero)
        put(A, row_at(i) + i, like(zero, 1.0))


@inline
def _pivot(x, lowest):
    """1/√x, and the lowest pivot."""
    return like(x, 1.0) / sqrt(x), where_less(x, lowest, x, where_less(like(x, 0.0), x, lowest, x))


@jit
def factor(A, s, lowest):
    """K = LLᵀ in place (diagonal kept as 1/L_cc), both right-hand sides b → L⁻¹b. `lowest`, one vector, gets each
    lane's smallest pivot, which is not positive, or is NaN, where K is not positive definite."""
    padded = -(-s // BLOCK) * BLOCK
    least = like(nth(A, 0), np.inf)
    for J in range(0, padded, BLOCK):
        c0, c1, c2, c3 = row_at(J), row_at(J + 1), row_at(J + 2), row_at(J + 3)
        one, two, three = J + 1, J + 2, J + 3
        a00 = nth(A, c0 + J)
        a10, a11 = nth(A, c1 + J), nth(A, c1 + one)
        a20, a21, a22 = nth(A, c2 + J), nth(A, c2 + one), nth(A, c2 + two)
        a30, a31, a32, a33 = nth(A, c3 + J), nth(A, c3 + one), nth(A, c3 + two), nth(A, c3 + three)
        for k in range(J):
            l0, l1, l2, l3 = nth(A, c0 + k), nth(A, c1 + k), nth(A, c2 + k), nth(A, c3 + k)
            a00 = less(a00, l0, l0)
            a10 = less(a10, l1, l0)
            a11 = less(a11, l1, l1)
            a20 = less(a20, l2, l0)
            a21 = less(a21, l2, l1)
            a22 = less(a22, l2, l2)
            a30 = less(a30, l3, l0)
            a31 = less(a31, l3, l1)
            a32 = less(a32, l3, l2)
            a33 = less(a33, l3, l3)
        a00, least = _pivot(a00, least)
        a10 = a10 * a00
        a20 = a20 * a00
        a30 = a30 * a00
        a11, least = _pivot(less(a11, a10, a10), least)
        a21 = less(a21, a20, a10) * a11
        a31 = less(a31, a30, a10) * a11
        a22, least = _pivot(less(less(a22, a20, a20), a21, a21), least)
        a32 = less(less(a32, a30, a20), a31, a21) * a22
        a33, least = _pivot(less(less(less(a33, a30, a30), a31, a31), a32, a32), least)
        put(A, c0 + J, a00)
        put(A, c1 + J, a10)
        put(A, c1 + one, a11)
        put(A, c2 + J, a20)
        put(A, c2 + one, a21)
        put(A, c2 + two, a22)
        put(A, c3 + J, a30)
        put(A, c3 + one, a31)
        put(A, c3 + two, a32)
        put(A, c3 + three, a33)
        for i in range(J + BLOCK, padded + 2, 2):
            r0, r1 = row_at(i), row_at(i + 1)
            b00, b01, b02, b03 = nth(A, r0 + J), nth(A, r0 + one), nth(A, r0 + two), nth(A, r0 + three)
            b10, b11, b12, b13 = nth(A, r1 + J), nth(A, r1 + one), nth(A, r1 + two), nth(A, r1 + three)
            for k in range(J):
                x0, x1 = nth(A, r0 + k), nth(A, r1 + k)
                l0, l1, l2, l3 = nth(A, c0 + k), nth(A, c1 + k), nth(A, c2 + k), nth(A, c3 + k)
                b00 = less(b00, x0, l0)
                b01 = less(b01, x0, l1)
                b02 = less(b02, x0, l2)
                b03 = less(b03, x0, l3)
                b10 = less(b10, x1, l0)
                b11 = less(b11, x1, l1)
                b12 = less(b12, x1, l2)
                b13 = less(b13, x1, l3)
            b00 = b00 * a00
            b10 = b10 * a00
            b01 = less(b01, b00, a10) * a11
            b11 = less(b11, b10, a10) * a11
            b02 = less(less(b02, b00, a20), b01, a21) * a22
            b12 = less(less(b12, b10, a20), b11, a21) * a22
            b03 = less(less(less(b03, b00, a30), b01, a31), b02, a32) * a33
            b13 = less(less(less(b13, b10, a30), b11, a31), b12, a32) * a33
            put(A, r0 + J, b00)
            put(A, r0 + one, b01)
            put(A, r0 + two, b02)
            put(A, r0 + three, b03)
            put(A, r1 + J, b10)
            put(A, r1 + one, b11)
            put(A, r1 + two, b12)
            put(A, r1 + three, b13)
    put(lowest, 0, least)


@jit
def solve_transposed(A, s):
    """Both right-hand sides, as `factor` left them: b → L⁻ᵀb."""
    padded = -(-s // BLOCK) * BLOCK
    v, w = row_at(padded), row_at(padded + 1)
    for i in range(s - 1, -1, -1):
        row = row_at(i)
        inverse = nth(A, row + i)
        vi = nth(A, v + i) * inverse
        wi = nth(A, w + i) * inverse
        put(A, v + i, vi)
        put(A, w + i, wi)
        for k in range(i):
            column = nth(A, row + k)
            put(A, v + k, less(nth(A, v + k), column, vi))
            put(A, w + k, less(nth(A, w + k), column, wi))


def _keep(kernel, slope, at, size, dc):
    """Slopes of a vector of pairs, if there is room for them; of a sum of kernels all three, each in `size` numbers."""
    raise NotImplementedError


@overload(_keep)
def _keep_slopes(kernel, slope, at, size, dc):
    if isinstance(slope, types.NoneType):
        return lambda kernel, slope, at, size, dc: None
    if is_sum(kernel):

        def of_sum(kernel, slope, at, size, dc):
            put(slope, at, dc[0])
            put(slope, size + at, dc[1])
            put(slope, 2 * size + at, dc[2])

        return of_sum
    return lambda kernel, slope, at, size, dc: put(slope, at, dc)


def scratch(s: int, d: int, n_slopes: int = 1, dtype=np.float64):
    """For probes and s − 1 neighbours. n_slopes: 3 for a sum of kernels."""
    padded = -(-s // BLOCK) * BLOCK
    size = BLOCK * (padded // BLOCK + 1) * (padded // 2)
    sizes = (size + 2 * (padded + BLOCK), n_slopes * size, s * (d | 1), 2 * s)
    return tuple(aligned(LANES[np.dtype(dtype)] * size, dtype) for size in sizes)
