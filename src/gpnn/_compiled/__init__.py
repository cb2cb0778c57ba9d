"""Compiled building blocks: SIMD vectors, covariances of vectors of squared distances, a blocked Cholesky factor."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

jit: Any = njit(nogil=True, cache=True, error_model="numpy")
"""How everything here is compiled: once per machine (cached on disk), without the interpreter lock."""


inline: Any = njit(nogil=True, error_model="numpy", inline="always")
"""For functions with one caller: compiled as part of it, instead of once alone and once more there."""


def aligned(size: int, dtype) -> NDArray:
    """Uninitialised, starting at a cache line: a vector that straddles two of them loads at half speed."""
    raw = np.empty(size + 64, dtype)
    skip = -raw.ctypes.data % 64 // raw.itemsize
    return raw[skip : skip + size]
