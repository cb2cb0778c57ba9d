"""The local systems: A = C − hhᵀ + (σ_ξ²/σ_f²)I of one query, factored tile by tile (see `engines.cpu.solver`).

Two rows are added below A, h and y − center·h, which the factorisation turns into L⁻¹h and L⁻¹(y − center·h). A tile
of A is computed when its turn comes and never stored; L lies in a work array of the program's own. Tiles below the
diagonal are solved with the inverse of the diagonal one, and corrected once by what that leaves: so they are as
accurate as substitution would make them, at the speed of matrix products.
"""

import triton
import triton.language as tl

from gpnn.engines.gpu.kernels.covariance import one_minus_correlation

STRIP = tl.constexpr(16)  # rows of the index lie in strips of sixteen (`cells.Rows`)


@triton.jit
def inverse_factor(S, n_columns, lowest, L, stride, STORE: tl.constexpr, B: tl.constexpr):
    """L⁻¹ of the symmetric tile S = LLᵀ (B, B), of which the first n_columns columns are factored.

    Each column of S makes room for one of the inverse when its turn is over; that of L goes to memory, if STORE. Rows
    beyond n_columns are carried along there as rows below the factor. All NaN where a pivot is not above `lowest`.
    """
    index = tl.arange(0, B)
    for c in range(0, n_columns):
        here = index == c
        later = index > c
        column = tl.sum(tl.where(here[None, :], S, 0.0), axis=1)
        row = tl.sum(tl.where(here[:, None], S, 0.0), axis=0)  # before c, that of the inverse
        pivot = tl.sum(tl.where(here, row, 0.0), axis=0)
        scale = tl.where(pivot > lowest, 1.0 / tl.sqrt(pivot), float("nan")).to(S.dtype)
        if STORE:
            tl.store(L + index * stride + c, column * scale, mask=index >= c)
        column = tl.where(later, column * scale, 0.0)
        row = tl.where(here, scale, row * scale)
        S = tl.where(here[None, :], 0.0, S) - column[:, None] * row[None, :]
        S = tl.where(here[:, None], row[None, :], S)
    return tl.where(index[:, None] >= index[None, :], S, 0.0)


@triton.jit
def _tile(z, g, rhs, noise, i, j, m, padded, d, KERNEL: tl.constexpr):
    """Rows i and columns j of A with the two rows below it; the identity beyond."""
    r2 = tl.zeros((i.shape[0], j.shape[0]), z.dtype.element_ty)
    for k in range(0, d):
        difference = tl.load(z + k * padded + i)[:, None] - tl.load(z + k * padded + j)[None, :]
        r2 += difference * difference
    gi = tl.load(g + i)[:, None]
    gj = tl.load(g + j)[None, :]
    value = gi + gj - gi * gj - one_minus_correlation(r2, KERNEL)
    value = tl.where(i[:, None] == j[None, :], value + tl.load(noise + i)[:, None], value)
    h = 1.0 - gj
    value = tl.where(i[:, None] == m, h, value)
    value = tl.where(i[:, None] == m + 1, tl.load(rhs + j)[None, :], value)
    return tl.where((i[:, None] <= m + 1) & (j[None, :] < m), value, 0.0)


@triton.jit(do_not_specialize=["n_queries", "m"])
def solve(
    strips, y, neighbors, X_star, inverse_lengthscale, ratio, ratio_step, lowest, A_h, A_y, center, amplified,
    work, work_size, n_queries, m, padded, d,
    KERNEL: tl.constexpr, B: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """L⁻¹h → A_h (q, m), L⁻¹(y − center·h) → A_y (q, m), the mean of y → center (q,), and `amplified` (q, 3):
    Σ A_ii v_i² and Σ A_ii w_i² for v = A⁻¹h and w = A⁻¹(y − center·h), and max |y − center|. NaN where A is not
    positive definite.

    y (n,) float64, neighbors (q, m), X_star (q, d); ratio (n,): the noise of each row over σ_f², or one number for all
    if ratio_step is 0; `work` has work_size numbers for each program.
    """
    program = tl.program_id(0).to(tl.int64)
    L = work + program * work_size
    dtype = L.dtype.element_ty
    z = L + padded * padded  # (d, padded): N − x in lengthscales
    g = z + d * padded
    rhs = g + padded
    v = rhs + padded
    w = v + padded
    noise = w + padded
    inverses = noise + padded  # (tiles, B, B)
    index = tl.arange(0, B)
    for at in range(program, n_queries, tl.num_programs(0)):
        sums = tl.zeros((B,), tl.float64)
        for i0 in range(0, m, B):
            i = i0 + index
            row = tl.load(neighbors + at * m + i, mask=i < m, other=0)
            sums += tl.load(y + row, mask=i < m, other=0.0)
        middle = tl.sum(sums, axis=0) / m
        spread = tl.zeros((B,), tl.float64)
        for i0 in range(0, padded, B):
            i = i0 + index
            inside = i < m
            row = tl.load(neighbors + at * m + i, mask=inside, other=0)
            address = strips + (row // STRIP) * (STRIP * d) + row % STRIP
            r2 = tl.zeros((B,), dtype)
            for column in range(0, d):
                x = tl.load(X_star + at * d + column).to(dtype)
                difference = tl.load(address + STRIP * column, mask=inside, other=0.0).to(dtype) - x
                difference = tl.where(inside, difference * tl.load(inverse_lengthscale + column), 0.0)
                tl.store(z + column * padded + i, difference)
                r2 += difference * difference
            gi = tl.where(inside, one_minus_correlation(r2, KERNEL), 0.0)
            tl.store(g + i, gi)
            tl.store(noise + i, tl.load(ratio + row * ratio_step))
            # y − center·h without cancellation: (y − center) + center·g
            centred = tl.where(inside, tl.load(y + row, mask=inside, other=0.0) - middle, 0.0)
            spread = tl.maximum(spread, tl.abs(centred))
            tl.store(rhs + i, (centred + middle * gi).to(dtype))
        tl.store(center + at, middle)
        tl.store(amplified + 3 * at + 2, tl.max(spread, axis=0))
        tl.debug_barrier()

        for J in range(0, padded, B):
            j = J + index
            S = _tile(z, g, rhs, noise, j, j, m, padded, d, KERNEL)
            done = tl.zeros((B, B), dtype)
            for K in range(0, J, B):
                left = tl.load(L + j[:, None] * padded + (K + index)[None, :])
                done = tl.dot(left, tl.trans(left), done, input_precision=PRECISION, out_dtype=dtype)
            own = L + J * padded + J
            inverse = inverse_factor(S - done, tl.minimum(B, m - J), lowest, own, padded, True, B)
            tl.store(inverses + J * B + index[:, None] * B + index[None, :], inverse)
            tl.debug_barrier()
            lower_half = index[:, None] >= index[None, :]
            diagonal = tl.load(own + index[:, None] * padded + index[None, :], mask=lower_half, other=0.0)
            inverse_t, diagonal_t = tl.trans(inverse), tl.trans(diagonal)
            for below in range(J + B, padded, B):
                i = below + index
                S = _tile(z, g, rhs, noise, i, j, m, padded, d, KERNEL)
                done = tl.zeros((B, B), dtype)
                for K in range(0, J, B):
                    upper = tl.load(L + j[:, None] * padded + (K + index)[None, :])
                    lower = tl.load(L + i[:, None] * padded + (K + index)[None, :])
                    done = tl.dot(lower, tl.trans(upper), done, input_precision=PRECISION, out_dtype=dtype)
                S -= done
                X = tl.dot(S, inverse_t, input_precision=PRECISION, out_dtype=dtype)
                S -= tl.dot(X, diagonal_t, input_precision=PRECISION, out_dtype=dtype)
                X += tl.dot(S, inverse_t, input_precision=PRECISION, out_dtype=dtype)
                tl.store(L + i[:, None] * padded + j[None, :], X)
            tl.debug_barrier()

        weights = tl.zeros((B,), dtype)
        residuals = tl.zeros((B,), dtype)
        for back in range(0, padded, B):  # v = L⁻ᵀ(L⁻¹h) and w likewise, from the last tile up
            first = padded - B - back
            j = first + index
            a = tl.load(L + m * padded + j, mask=j < m, other=0.0)
            b = tl.load(L + (m + 1) * padded + j, mask=j < m, other=0.0)
            tl.store(A_h + at * m + j, a, mask=j < m)
            tl.store(A_y + at * m + j, b, mask=j < m)
            for i0 in range(first + B, padded, B):
                i = i0 + index
                tile = tl.load(L + i[:, None] * padded + j[None, :], mask=(i < m)[:, None], other=0.0)
                a -= tl.sum(tile * tl.load(v + i)[:, None], axis=0)
                b -= tl.sum(tile * tl.load(w + i)[:, None], axis=0)
            inverse = tl.load(inverses + first * B + index[:, None] * B + index[None, :])
            inverse = tl.where((j < m)[:, None], inverse, 0.0)
            a = tl.sum(inverse * a[:, None], axis=0)
            b = tl.sum(inverse * b[:, None], axis=0)
            tl.store(v + j, a)
            tl.store(w + j, b)
            gj = tl.load(g + j)
            variance = gj * (2.0 - gj) + tl.load(noise + j)
            weights += variance * a * a
            residuals += variance * b * b
            tl.debug_barrier()
        tl.store(amplified + 3 * at, tl.sum(weights, axis=0).to(tl.float64))
        tl.store(amplified + 3 * at + 1, tl.sum(residuals, axis=0).to(tl.float64))
        tl.debug_barrier()


@triton.jit(do_not_specialize=["m", "n_sizes", "n_innovations"])
def laws(A_h, A_y, center, sizes, mean, shrinkage, innovations, m, n_sizes, n_innovations, M: tl.constexpr):
    """From what `solve` left: means and 1/precision (q, n_sizes), from the nearest sizes[k] rows, and the innovations
    of the first n_innovations (q, n_innovations), times σ_f². M is a power of two, at least m.

    Row i of L⁻¹ sees rows up to i only: each partial sum is the answer for that many neighbours.
    """
    q = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, M)
    a = tl.load(A_h + q * m + i, mask=i < m, other=0.0).to(tl.float64)
    b = tl.load(A_y + q * m + i, mask=i < m, other=0.0).to(tl.float64)
    middle = tl.load(center + q)
    precision = 1.0 + tl.cumsum(a * a, axis=0)
    product = tl.cumsum(a * b, axis=0)
    before = precision - a * a
    surprise = b - a * (product - a * b - middle) / before  # what rows up to i say of f* − center
    innovation = surprise * surprise * before / precision
    tl.store(innovations + q * n_innovations + i, innovation.to(tl.float32), mask=i < n_innovations)
    for k in range(0, n_sizes):
        last = i == tl.load(sizes + k) - 1
        here = tl.sum(tl.where(last, precision, 0.0), axis=0)
        # eq. 6; hᵀA⁻¹(center·h) = center·(precision − 1)
        value = (tl.sum(tl.where(last, product, 0.0), axis=0) + middle * (here - 1.0)) / here
        tl.store(mean + q * n_sizes + k, value)
        tl.store(shrinkage + q * n_sizes + k, 1.0 / here)
