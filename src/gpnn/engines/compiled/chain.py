"""Fields along a chain of points, compiled: an order from coarse to fine, the links of each point, runs along them, and
the errors that predictions make of such fields."""

import numpy as np

from gpnn.engines.compiled import inline, jit
from gpnn.engines.compiled.cholesky import factor, solve_transposed
from gpnn.engines.compiled.covariance import covariance, farther, no_distance
from gpnn.engines.compiled.vectors import LANES, like, load, store
from gpnn.engines.local import LOWEST_PIVOT

_LANES = LANES[np.dtype(np.float64)]
_FINER = np.sqrt(0.5)  # cells of each level, against those of the one before
_LEVELS = 60
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ over the golden ratio: spreads cells over a table


@inline
def _cell(X, p, low, size):
    h = np.uint64(0)
    for k in range(X.shape[1]):
        h = (h ^ np.uint64(np.int64((X[p, k] - low[k]) / size))) * _MIX
        h ^= h >> np.uint64(29)
    return h


@inline
def _is_free(keys, levels, cell, level):
    """Whether nothing lies in the cell at this level; from now on, something does."""
    mask = np.uint64(len(keys) - 1)
    at = cell & mask
    while levels[at] == level:
        if keys[at] == cell:
            return False
        at = (at + np.uint64(1)) & mask
    keys[at], levels[at] = cell, level
    return True


@jit
def coarse_to_fine(X, first_order):
    """An order of points in which those before any one are spread evenly: one for each cell of a coarse grid, then one
    for each empty cell of a finer grid, and so on. Of a cell's points, the first in `first_order` is taken."""
    q, d = X.shape
    low = np.empty(d)
    size = 0.0
    for k in range(d):
        low[k] = X[:, k].min()
        size = max(size, X[:, k].max() - low[k])
    size = 1.001 * size + 1e-300
    room = 2
    while room < 2 * q:
        room *= 2
    keys, levels = np.zeros(room, np.uint64), np.zeros(room, np.int32)
    order, rest = np.empty(q, np.int64), first_order.copy()
    done, left = 0, q
    for level in range(1, _LEVELS):
        if left == 0:
            break
        for i in range(done):
            _is_free(keys, levels, _cell(X, order[i], low, size), level)
        kept = 0
        for i in range(left):
            if _is_free(keys, levels, _cell(X, rest[i], low, size), level):
                order[done] = rest[i]
                done += 1
            else:
                rest[kept] = rest[i]
                kept += 1
        left = kept
        size *= _FINER
    order[done:] = rest[:left]
    return order


@inline
def _factor_correlations(kernel, x, points, numbers, count, inverse_lengthscale, diagonal, A, z):
    """In strips of A: the factor of the correlations of points[numbers[:count]], and beside it L⁻¹ of those with x.

    z is scratch. False where they are too close to singular.
    """
    d = points.shape[1]
    lanes = _LANES
    n_strips = -(-count // lanes)
    stride = n_strips * lanes * lanes
    right = n_strips * stride
    for i in range(n_strips * lanes):
        at = (i // lanes) * d * lanes + i % lanes
        for k in range(d):
            z[at + k * lanes] = 0.0
            if i < count:
                z[at + k * lanes] = (np.float64(points[numbers[i], k]) - x[k]) * inverse_lengthscale[k]
    for s in range(n_strips):
        row = s * d * lanes
        zero = like(load(z, row), 0.0)
        one = like(zero, 1.0)
        for j in range((s + 1) * lanes):
            column = (j // lanes) * d * lanes + j % lanes
            r2 = no_distance(kernel, zero)
            for k in range(d):
                r2 = farther(kernel, r2, load(z, row + k * lanes) - like(zero, z[column + k * lanes]), k)
            store(A, s * stride + j * lanes, one - covariance(kernel, r2)[0])
    for s in range(n_strips):
        row = s * d * lanes
        zero = like(load(z, row), 0.0)
        r2 = no_distance(kernel, zero)
        for k in range(d):
            r2 = farther(kernel, r2, load(z, row + k * lanes), k)
        store(z, row, like(zero, 1.0) - covariance(kernel, r2)[0])  # the points are not needed any more
        for lane in range(lanes):
            i = s * lanes + lane
            store(A, right + i * lanes, zero)
            if i < count:
                A[s * stride + i * lanes + lane] = diagonal
                A[right + i * lanes] = z[row + lane]
            else:  # padding: a row of the identity
                for j in range(i):
                    A[s * stride + j * lanes + lane] = 0
                A[s * stride + i * lanes + lane] = 1
    return factor(A, n_strips, lanes, stride, LOWEST_PIVOT)


@jit
def regress(kernel, X, points, numbers, inverse_lengthscale, diagonal, mask, A, z, weights, rest):
    """Weights (b, k) with which values at points[numbers] (b, k) predict those at X (b, d), and the variance that is
    left (b,), relative to σ_f². Only where `mask` is set; NaN where a system is singular.

    numbers: −1 where there are no more. diagonal: 1 and what is added to it.
    """
    lanes = _LANES
    v = np.empty(numbers.shape[1] + lanes)
    unused = np.empty(numbers.shape[1] + lanes)
    for q in range(len(X)):
        if not mask[q]:
            continue
        count = 0
        while count < numbers.shape[1] and numbers[q, count] >= 0:
            count += 1
        weights[q, :] = 0.0
        rest[q] = np.nan
        x = X[q].astype(np.float64)
        if not _factor_correlations(kernel, x, points, numbers[q], count, inverse_lengthscale, diagonal, A, z):
            continue
        n_strips = -(-count // lanes)
        right = n_strips * n_strips * lanes * lanes
        left = 1.0
        for i in range(count):
            left -= A[right + i * lanes] ** 2
        rest[q] = max(left, LOWEST_PIVOT)
        solve_transposed(A, n_strips, lanes, n_strips * lanes * lanes, v, unused)
        for i in range(count):
            weights[q, i] = v[i]


@jit
def run_down(before, weights, rest, values, first, last):
    """values[:, first:last]: independent numbers become those of the chain, from the first point to the last."""
    for i in range(len(before)):
        for c in range(first, last):
            values[i, c] *= rest[i]
        for k in range(before.shape[1]):
            j = before[i, k]
            if j < 0:
                break
            weight = np.float64(weights[i, k])
            for c in range(first, last):
                values[i, c] += weight * values[j, c]


@jit
def run_up(before, weights, rest, values, first, last):
    """The transpose: weights of the points become those of the independent numbers that they are made from."""
    for i in range(len(before) - 1, -1, -1):
        for k in range(before.shape[1]):
            j = before[i, k]
            if j < 0:
                break
            weight = np.float64(weights[i, k])
            for c in range(first, last):
                values[j, c] += weight * values[i, c]
        for c in range(first, last):
            values[i, c] *= rest[i]


@jit
def subtract_predictions(numbers, weights, observed, out):
    """out (b, k) −= what the observed (n, k) at rows `numbers` (b, m) say of it."""
    for q in range(len(numbers)):
        for i in range(numbers.shape[1]):
            weight = weights[q, i]
            values = observed[numbers[q, i]]
            for c in range(out.shape[1]):
                out[q, c] -= weight * values[c]


@jit
def add_transposed(numbers, weights, sums, columns, out):
    """out[numbers[q], columns[q]] += sums[q] · weights[q]: what a sum of predictions asks of each observation."""
    for q in range(len(numbers)):
        for i in range(numbers.shape[1]):
            out[numbers[q, i], columns[q]] += sums[q] * weights[q, i]
