"""Rows on their way to whitened columns, each by itself."""

import numpy as np

from gpnn.engines.compiled import jit
from gpnn.engines.local import FARTHEST


@jit
def map_rows(X, mean, x_map, out):
    """(x − mean) times x_map, row by row: a matrix product would round a row differently in different company."""
    n, d = X.shape
    total = np.empty(d)
    for i in range(n):
        for j in range(d):
            total[j] = 0.0
        for k in range(d):
            centred = X[i, k] - mean[k]
            for j in range(d):
                total[j] += centred * x_map[k, j]
        for j in range(d):
            out[i, j] = min(max(total[j], -FARTHEST), FARTHEST)


@jit
def rank_rows(X, knots, reach, out):
    """Where each value stands among its column's knots, in the middle of those that it equals, else between two."""
    n, d = X.shape
    last = knots.shape[1] - 1
    for i in range(n):
        for j in range(d):
            x, column = X[i, j], knots[j]
            if x < column[0]:
                out[i, j] = (x - column[0]) / reach[j]
            elif x > column[last]:
                out[i, j] = last + (x - column[last]) / reach[j]
            else:
                below = np.searchsorted(column, x, "left")
                upto = np.searchsorted(column, x, "right")
                if upto > below:
                    out[i, j] = 0.5 * (below + upto - 1)
                else:
                    out[i, j] = below - 1 + (x - column[below - 1]) / (column[below] - column[below - 1])


@jit
def smallest(values, found):
    """The columns of the least of each row's values (q, n), the least first, to found (q, m); m ≤ n."""
    q, n = values.shape
    m = found.shape[1]
    kept = np.empty(m, values.dtype)
    for i in range(q):
        count = 0
        for j in range(n):
            value = values[i, j]
            if count == m and value >= kept[m - 1]:
                continue
            at = count if count < m else m - 1
            count = min(count + 1, m)
            while at > 0 and kept[at - 1] > value:
                kept[at] = kept[at - 1]
                found[i, at] = found[i, at - 1]
                at -= 1
            kept[at] = value
            found[i, at] = j
