"""Sums of decision trees."""

from gpnn.engines.compiled import jit

_ROWS = 64  # that go through a tree, one after another, while it is at hand


@jit
def add_trees(X, roots, column, value, left, out):
    """Add to out (q,) what the trees say of rows X (q, d), each row by itself. A node without a column (−1) is a leaf,
    and `value` what it says; of others, it is the threshold up to which rows go left, and the right child comes after
    the left one."""
    for start in range(0, len(X), _ROWS):
        for root in roots:
            for i in range(start, min(start + _ROWS, len(X))):
                node = root
                k = column[node]
                while k >= 0:
                    node = left[node] + (X[i, k] > value[node])
                    k = column[node]
                out[i] += value[node]
