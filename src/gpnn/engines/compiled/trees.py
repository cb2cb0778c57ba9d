"""Sums of decision trees."""

from gpnn.engines.compiled import jit


@jit
def add_trees(X, roots, column, value, left, right, out):
    """Add to out (q,) what the trees say of rows X (q, d), row by row. A node without a column (−1) is a leaf, and
    `value` what it says; of others, it is the threshold up to which rows go left."""
    for i in range(len(X)):
        total = out[i]
        for root in roots:
            node = root
            while column[node] >= 0:
                node = left[node] if X[i, column[node]] <= value[node] else right[node]
            total += value[node]
        out[i] = total
