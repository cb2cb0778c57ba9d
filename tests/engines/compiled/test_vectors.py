"""Functions of vectors, against numpy's."""

import numpy as np
import pytest

from gpnn.engines.compiled import jit
from gpnn.engines.compiled.vectors import LANES, exp_minus, load, store


@jit
def exponentials(x, lanes, found):
    for i in range(0, len(x), lanes):
        store(found, i, exp_minus(load(x, i)))


@pytest.mark.parametrize(("dtype", "close", "last"), [(np.float64, 1e-13, 200.0), (np.float32, 1e-6, 25.0)])
def test_exponentials_whose_products_stay_normal(dtype, close, last):
    x = np.geomspace(1e-6, 1e4, 16 * 50).astype(dtype)
    found = np.empty_like(x)
    exponentials(x, LANES[np.dtype(dtype)], found)
    np.testing.assert_allclose(found, np.exp(-np.minimum(x.astype(float), last)), rtol=close * last)
    assert found.min() ** 3 > np.finfo(dtype).tiny
