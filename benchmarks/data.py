"""What the benchmarks do with a data set of `gpnn.datasets`."""

import numpy as np


def split(X, y, seed: int):
    """The paper's random 7/9 for training, 2/9 for testing."""
    rows = np.random.default_rng(seed).permutation(len(X))
    n_train = len(X) * 7 // 9
    train, test = rows[:n_train], rows[n_train:]
    return X[train], y[train], X[test], y[test]
