"""What the benchmarks do with a data set of `gpnn.datasets`, and one of their own."""

import numpy as np

from gpnn import datasets


def load(name: str):
    """X and y of a set of `gpnn.datasets`, or of the robot's arm."""
    return robot_arm(8192) if name == "robot_arm" else datasets.load(name)


def robot_arm(n: int, seed: int = 0):
    """Eight joint angles, and how far the hand is from the shoulder, with noise of a fifth of its standard deviation:
    sums of angles matter, in the manner of kin8nm."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(-1.5, 1.5, size=(n, 8))
    lengths, directions = np.linspace(1.0, 0.3, 8), np.cumsum(angles, axis=1)
    reach = np.hypot(*((lengths * along(directions)).sum(axis=1) for along in (np.cos, np.sin)))
    return angles, reach + 0.2 * reach.std() * rng.normal(size=n)


def split(X, y, seed: int):
    """The paper's random 7/9 for training, 2/9 for testing."""
    rows = np.random.default_rng(seed).permutation(len(X))
    n_train = len(X) * 7 // 9
    train, test = rows[:n_train], rows[n_train:]
    return X[train], y[train], X[test], y[test]
