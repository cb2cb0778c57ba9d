"""Sums of decision trees."""

import numpy as np

from gpnn.engines.compiled import inline, jit

_ROWS = 64  # that go through a tree, one after another, while it is at hand
_ABREAST = 8  # ways down that are followed at a time: each step waits for the one before it


@jit
def add_trees(X, roots, column, value, left, out):
    """Add to out (q,) what the trees say of rows X (q, d), each row by itself. A node without a column (−1) is a leaf,
    and `value` what it says; of others, it is the threshold up to which rows go left, and the right child comes after
    the left one."""
    at = np.empty(_ABREAST, np.int64)
    for start in range(0, len(X), _ROWS):
        stop = min(start + _ROWS, len(X))
        whole = stop - (stop - start) % _ABREAST
        for root in roots:
            for i in range(start, whole, _ABREAST):
                for j in range(_ABREAST):
                    at[j] = root
                _go_down(at, _ABREAST, X, i, 1, column, value, left)
                for j in range(_ABREAST):
                    out[i + j] += value[at[j]]
        for i in range(whole, stop):  # of what is left, one row through several trees
            for first in range(0, len(roots), _ABREAST):
                n = min(_ABREAST, len(roots) - first)
                for j in range(n):
                    at[j] = roots[first + j]
                _go_down(at, n, X, i, 0, column, value, left)
                for j in range(n):
                    out[i] += value[at[j]]


@inline
def _go_down(at, n, X, i, step, column, value, left):
    """From n nodes to their leaves, with the rows i, i + step, …"""
    inner = True
    while inner:
        inner = False
        for j in range(n):
            node = at[j]
            k = column[node]
            if k >= 0:
                at[j] = left[node] + (X[i + step * j, k] > value[node])
                inner = True
