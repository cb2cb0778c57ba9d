import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def wavy():
    """3000 rows of a smooth function of three columns with noise of variance 0.01, in no particular units."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 3)) * [1.0, 20.0, 0.003] + [5.0, -100.0, 0.0]
    z = (X - [5.0, -100.0, 0.0]) / [1.0, 20.0, 0.003]
    y = 50 + 7 * (np.sin(2 * z[:, 0]) + 0.5 * z[:, 1] * z[:, 2] + 0.1 * rng.normal(size=len(X)))
    return X, y
