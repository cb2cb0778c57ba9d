"""Covariance matrices of a few rows each, abreast: as many at once as a register has lanes.

One such matrix alone would spend most of its time waiting: for the square root of a pivot, or for the sum of a vector's
lanes. Here each lane is a matrix of its own, and no lane waits for another.

Matrices are lower triangles in rows of whole blocks: row i has `BLOCK`·(i // BLOCK + 1) vectors, and two rows of
right-hand sides follow, so that they are solved for as the factor is made.
"""

import numpy as np
from numba.core import types
from numba.extending import overload

from gpnn.engines.compiled import aligned, inline, jit
from gpnn.engines.compiled.covariance import correlation, farther, is_sum, no_distance
from gpnn.engines.compiled.vectors import LANES, fma, less, like, load, sqrt, store, where_less

_LANES = LANES[np.dtype(np.float64)]
BLOCK = 4


@inline
def row_at(i):
    """Where row i begins."""
    whole = i // BLOCK
    return _LANES * BLOCK * (whole + 1) * (BLOCK * whole // 2 + i % BLOCK)


@inline
def step_of(d):
    """From one row of z to the next: an odd number of cache lines, or rows would drive each other out."""
    return (d | 1) * _LANES


@inline
def _put(kernel, r2, kernel_variance, A, slope, at, size):
    c, dc = correlation(kernel, r2)
    store(A, at, like(c, kernel_variance) * c)
    _keep(kernel, slope, at, size, dc)


@jit
def fill(kernel, s, d, z, noise, kernel_variance, noise_variance, A, slope):
    """K = σ_f²C + noise of rows z (s, d) of vectors, in lengthscales, and dc/d(r²). noise (s, 2): as vectors, of each
    row's share of σ_ξ² and what is known beside that."""
    padded = -(-s // BLOCK) * BLOCK
    size, step = row_at(padded), step_of(d)
    zero = like(load(z, 0), 0.0)
    for i in range(s):
        own = i * step
        for j in range(0, i + 1, 2):  # two columns at a time: neither waits for the other
            column = j * step
            next_column = column + (step if j < i else 0)
            r0 = no_distance(kernel, zero)
            r1 = no_distance(kernel, zero)
            for k in range(0, d * _LANES, _LANES):
                zi = load(z, own + k)
                r0 = farther(kernel, r0, zi - load(z, column + k), k // _LANES)
                r1 = farther(kernel, r1, zi - load(z, next_column + k), k // _LANES)
            at = row_at(i) + j * _LANES
            _put(kernel, r0, kernel_variance, A, slope, at, size)
            _put(kernel, r1, kernel_variance, A, slope, at + _LANES, size)
        diagonal = row_at(i) + i * _LANES
        own_noise = fma(load(noise, 2 * i * _LANES), like(zero, noise_variance), load(noise, (2 * i + 1) * _LANES))
        store(A, diagonal, like(zero, kernel_variance) + own_noise)
    for i in range(s, padded):  # rows of the identity, which change nothing
        for j in range(i):
            store(A, row_at(i) + j * _LANES, zero)
        store(A, row_at(i) + i * _LANES, like(zero, 1.0))


@inline
def _pivot(x, lowest):
    """1/√x, and the lowest pivot."""
    return like(x, 1.0) / sqrt(x), where_less(x, lowest, x, where_less(like(x, 0.0), x, lowest, x))


@jit
def factor(A, s, lowest):
    """K = LLᵀ in place (diagonal kept as 1/L_cc), both right-hand sides b → L⁻¹b. `lowest`, one vector, gets each
    lane's smallest pivot, which is not positive, or is NaN, where K is not positive definite."""
    padded = -(-s // BLOCK) * BLOCK
    least = like(load(A, 0), np.inf)
    for J in range(0, padded, BLOCK):
        c0, c1, c2, c3 = row_at(J), row_at(J + 1), row_at(J + 2), row_at(J + 3)
        at = J * _LANES
        one, two, three = at + _LANES, at + 2 * _LANES, at + 3 * _LANES
        a00 = load(A, c0 + at)
        a10, a11 = load(A, c1 + at), load(A, c1 + one)
        a20, a21, a22 = load(A, c2 + at), load(A, c2 + one), load(A, c2 + two)
        a30, a31, a32, a33 = load(A, c3 + at), load(A, c3 + one), load(A, c3 + two), load(A, c3 + three)
        for k in range(0, at, _LANES):
            l0, l1, l2, l3 = load(A, c0 + k), load(A, c1 + k), load(A, c2 + k), load(A, c3 + k)
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
        store(A, c0 + at, a00)
        store(A, c1 + at, a10)
        store(A, c1 + one, a11)
        store(A, c2 + at, a20)
        store(A, c2 + one, a21)
        store(A, c2 + two, a22)
        store(A, c3 + at, a30)
        store(A, c3 + one, a31)
        store(A, c3 + two, a32)
        store(A, c3 + three, a33)
        for i in range(J + BLOCK, padded + 2, 2):
            r0, r1 = row_at(i), row_at(i + 1)
            b00, b01, b02, b03 = load(A, r0 + at), load(A, r0 + one), load(A, r0 + two), load(A, r0 + three)
            b10, b11, b12, b13 = load(A, r1 + at), load(A, r1 + one), load(A, r1 + two), load(A, r1 + three)
            for k in range(0, at, _LANES):
                x0, x1 = load(A, r0 + k), load(A, r1 + k)
                l0, l1, l2, l3 = load(A, c0 + k), load(A, c1 + k), load(A, c2 + k), load(A, c3 + k)
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
            store(A, r0 + at, b00)
            store(A, r0 + one, b01)
            store(A, r0 + two, b02)
            store(A, r0 + three, b03)
            store(A, r1 + at, b10)
            store(A, r1 + one, b11)
            store(A, r1 + two, b12)
            store(A, r1 + three, b13)
    store(lowest, 0, least)


@jit
def solve_transposed(A, s):
    """Both right-hand sides, as `factor` left them: b → L⁻ᵀb."""
    padded = -(-s // BLOCK) * BLOCK
    v, w = row_at(padded), row_at(padded + 1)
    for i in range(s - 1, -1, -1):
        row = row_at(i)
        inverse = load(A, row + i * _LANES)
        vi = load(A, v + i * _LANES) * inverse
        wi = load(A, w + i * _LANES) * inverse
        store(A, v + i * _LANES, vi)
        store(A, w + i * _LANES, wi)
        for k in range(0, i * _LANES, _LANES):
            column = load(A, row + k)
            store(A, v + k, less(load(A, v + k), column, vi))
            store(A, w + k, less(load(A, w + k), column, wi))


def _keep(kernel, slope, at, size, dc):
    """Slopes of a vector of pairs, if there is room for them; of a sum of kernels all three, each in `size` numbers."""
    raise NotImplementedError


@overload(_keep)
def _keep_slopes(kernel, slope, at, size, dc):
    if isinstance(slope, types.NoneType):
        return lambda kernel, slope, at, size, dc: None
    if is_sum(kernel):

        def of_sum(kernel, slope, at, size, dc):
            store(slope, at, dc[0])
            store(slope, size + at, dc[1])
            store(slope, 2 * size + at, dc[2])

        return of_sum
    return lambda kernel, slope, at, size, dc: store(slope, at, dc)


def scratch(s: int, d: int, n_slopes: int = 1):
    """For probes and s − 1 neighbours. n_slopes: 3 for a sum of kernels."""
    padded = -(-s // BLOCK) * BLOCK
    size = _LANES * BLOCK * (padded // BLOCK + 1) * (padded // 2)
    sizes = (size + 2 * _LANES * (padded + BLOCK), n_slopes * size, s * (d | 1) * _LANES, 2 * s * _LANES)
    return tuple(aligned(size, np.float64) for size in sizes)
