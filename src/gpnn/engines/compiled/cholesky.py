"""Cholesky factor of one matrix that fits the core's cache, and what follows from it.

Matrices are stored in strips of `lanes` rows (see `vectors`), all strips in one flat array, `stride` apart:

    strips 0 … n−1        the symmetric matrix K, lower triangle; its size is a multiple of `lanes`
    strip  n              right-hand sides, as rows
    strips n+1 … 2n       room for L⁻ᵀ, where `minus_inverse` is asked for

Measured against LAPACK's potrf at size 400, this is about twice as fast, and it runs on any number of threads.
"""

from gpnn.engines.compiled import inline, jit
from gpnn.engines.compiled.vectors import (
    TILE_COLUMNS,
    factor_diagonal,
    fma,
    like,
    load,
    solve_strip,
    store,
    sum_lanes,
    tile_update_1,
    tile_update_2,
    tile_update_3,
)

_STRIPS = 3  # strips per tile
_CACHED = 128  # columns of three strips that stay in the first-level cache
PANEL = 12  # strips that stay in the second-level cache


@jit
def _update(A, left, stride, lanes, rows, count, columns, target, start, stop):
    """`count` ≤ 3 strips × `lanes` columns at `target`: −= Σ_{start ≤ k < stop} rows[:, k] · columns[:, k]ᵀ

    Rows and target are in A, columns in `left`.
    """
    width = min(TILE_COLUMNS, lanes)
    for begin in range(start, stop, _CACHED):
        end = min(stop, begin + _CACHED)
        for c in range(0, lanes, width):
            at = target + c * lanes
            if count == 3:
                tile_update_3(A, left, stride, rows, columns + c, at, begin, end)
            elif count == 2:
                tile_update_2(A, left, stride, rows, columns + c, at, begin, end)
            else:
                tile_update_1(A, left, stride, rows, columns + c, at, begin, end)


@inline
def factor(A, n_strips, lanes, stride, lowest):
    """K = LLᵀ in place (diagonal kept as 1/L_cc), right-hand sides b → L⁻¹b.

    Returns False at a pivot not above `lowest`: K is not positive definite, or too close to singular to go on.
    """
    for J in range(n_strips):
        k = J * lanes  # columns before this block are done
        columns = J * stride
        diagonal = columns + k * lanes
        first = J
        while first <= n_strips:  # the strips of K below, and the right-hand sides
            count = min(_STRIPS, n_strips + 1 - first)
            _update(A, A, stride, lanes, first * stride, count, columns, first * stride + k * lanes, 0, k)
            if first == J and not factor_diagonal(A, diagonal) > lowest:
                return False
            for strip in range(max(first, J + 1), first + count):
                solve_strip(A, A, diagonal, strip * stride + k * lanes)
            first += count
    return True


@inline
def solve(A, n_strips, lanes, stride, B, n_right):
    """b → L⁻¹b for `n_right` strips of right-hand sides in B, with the L that `factor` left in A."""
    for J in range(n_strips):
        k = J * lanes
        for first in range(0, n_right, _STRIPS):
            count = min(_STRIPS, n_right - first)
            _update(B, A, stride, lanes, first * stride, count, J * stride, first * stride + k * lanes, 0, k)
            for strip in range(first, first + count):
                solve_strip(B, A, J * stride + k * lanes, strip * stride + k * lanes)


@inline
def minus_inverse(A, n_strips, lanes, stride):
    """−K⁻¹ = −L⁻ᵀL⁻¹ over the lower triangle of K's strips (whole blocks on the diagonal), from what `factor` left.

    L⁻ᵀ is kept behind the right-hand sides. Both products go through PANEL strips at a time, which stay in the cache.
    """
    zero = like(load(A, 0), 0.0)
    inverse = (n_strips + 1) * stride
    for strip in range(n_strips):
        for k in range(n_strips * lanes):
            store(A, inverse + strip * stride + k * lanes, zero)
        for lane in range(lanes):
            A[inverse + strip * stride + (strip * lanes + lane) * lanes + lane] = 1
    for begin in range(0, n_strips, PANEL):
        for J in range(begin, n_strips):
            end = min(begin + PANEL, J + 1)
            for first in range(begin, end, _STRIPS):  # strip i of L⁻ᵀ is zero before its own block
                count = min(_STRIPS, end - first)
                rows = inverse + first * stride
                at = J * lanes * lanes
                _update(A, A, stride, lanes, rows, count, J * stride, rows + at, first * lanes, J * lanes)
                for strip in range(first, first + count):
                    solve_strip(A, A, J * stride + at, inverse + strip * stride + at)

    for strip in range(n_strips):
        for k in range((strip + 1) * lanes):
            store(A, strip * stride + k * lanes, zero)
    for begin in range(0, n_strips, PANEL):
        end = min(begin + PANEL, n_strips)
        for J in range(end):
            for first in range(max(begin, J), end, _STRIPS):
                count = min(_STRIPS, end - first)
                _update(A, A, stride, lanes, inverse + first * stride, count, inverse + J * stride,
                        first * stride + J * lanes * lanes, first * lanes, n_strips * lanes)  # fmt: skip


@inline
def solve_transposed(A, n_strips, lanes, stride, v, w):
    """Lᵀv = b₀ and Lᵀw = b₁ for the first two right-hand sides, as `factor` left them: with b = L⁻¹c, v = K⁻¹c."""
    right = n_strips * stride
    zero = like(load(A, 0), 0.0)
    for J in range(n_strips - 1, -1, -1):  # from the last row up
        store(v, J * lanes, zero)
        store(w, J * lanes, zero)
        for c in range(lanes - 1, -1, -1):
            k = J * lanes + c
            below_v = zero
            below_w = zero
            for strip in range(J, n_strips):  # in strip J itself, rows up to c are still zero
                column = load(A, strip * stride + k * lanes)
                below_v = fma(column, load(v, strip * lanes), below_v)
                below_w = fma(column, load(w, strip * lanes), below_w)
            inverse = A[J * stride + k * lanes + c]
            v[k] = (A[right + k * lanes] - sum_lanes(below_v)) * inverse
            w[k] = (A[right + k * lanes + 1] - sum_lanes(below_w)) * inverse
