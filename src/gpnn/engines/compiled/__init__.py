"""Compiled building blocks: SIMD vectors, covariances of vectors of squared distances, a blocked Cholesky factor."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gpnn.engines.compiled.kept import KeptCode

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def jit(function) -> Any:
    """Compile without the interpreter lock, and keep the result on disk until any file of the package changes."""
    dispatcher = njit(**_OPTIONS)(function)
    dispatcher._cache = KeptCode(function)
    return dispatcher


inline: Any = njit(inline="always", **_OPTIONS)
"""For functions with one caller: compiled as part of it, instead of once alone and once more there."""


def aligned(size: int, dtype) -> NDArray:
    """Uninitialised, starting at a cache line: a vector that straddles two of them loads at half speed."""
    raw = np.empty(size + 64, dtype)
    skip = -raw.ctypes.data % 64 // raw.itemsize
    return raw[skip : skip + size]
