"""Compiled building blocks: SIMD vectors, covariances of vectors of squared distances, a blocked Cholesky factor."""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

_PACKAGE = Path(__file__).parents[2]


def _source_stamp() -> str:
    """A digest of the package's code; numba's own check of a cached function looks at one file's date and size."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


_STAMP = _source_stamp()


def jit(function) -> Any:
    """Compile without the interpreter lock, and keep the result on disk until any file of the package changes."""
    dispatcher = njit(cache=True, **_OPTIONS)(function)
    with suppress(AttributeError):  # numba's internals; without them its own check remains
        dispatcher._cache._cache_file._source_stamp = _STAMP
    return dispatcher


inline: Any = njit(inline="always", **_OPTIONS)
"""For functions with one caller: compiled as part of it, instead of once alone and once more there."""


def aligned(size: int, dtype) -> NDArray:
    """Uninitialised, starting at a cache line: a vector that straddles two of them loads at half speed."""
    raw = np.empty(size + 64, dtype)
    skip = -raw.ctypes.data % 64 // raw.itemsize
    return raw[skip : skip + size]
