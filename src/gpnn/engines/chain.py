"""A Gaussian field at many points: whole where they are few, else as a chain, in which each value is a sum of a few
before it and of something of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array
from gpnn.engines.parallel import for_each_block, one_blas_thread

_COLUMNS = 8  # that a thread runs along the chain with: a cache line


@dataclass(frozen=True)
class Whole:
    """f = Lz for independent standard normal z, of variance 1 everywhere."""

    place: NDArray[np.int64]
    """(p,): which row of L each point is; points that are the same are the same row."""
    factor: Array
    """L (c, c)."""

    def __len__(self) -> int:
        return len(self.factor)

    def run(self, values: Array, n_jobs: int | None = 1) -> Array:
        """L·values (c, k), in place: columns of independent numbers become draws of the field."""
        with one_blas_thread():
            values[:] = self.factor @ values
        return values

    def run_transposed(self, values: Array, n_jobs: int | None = 1) -> Array:
        """Lᵀ·values (c, k), in place: the squares of each column sum to the variance of a weighted sum of the field."""
        with one_blas_thread():
            values[:] = self.factor.T @ values
        return values


@dataclass(frozen=True)
class Chain:
    """The same, with L⁻¹ of a few numbers in each row: every place follows from some before it."""

    place: NDArray[np.int64]
    """(p,): where each point stands in the chain; points that are the same stand at the same place."""
    before: NDArray[np.int32]
    """(c, k): places from which each place follows, −1 after the last."""
    weights: NDArray[np.float32]
    """(c, k): of those, and"""
    rest: Array
    """(c,): of the number that is its own."""

    def __len__(self) -> int:
        return len(self.rest)

    def run(self, values: Array, n_jobs: int | None = 1) -> Array:
        from gpnn.engines.compiled.chain import run_down

        return self._along(run_down, values, n_jobs)

    def run_transposed(self, values: Array, n_jobs: int | None = 1) -> Array:
        from gpnn.engines.compiled.chain import run_up

        return self._along(run_up, values, n_jobs)

    def _along(self, run, values: Array, n_jobs: int | None) -> Array:
        def columns(part: slice) -> None:
            run(self.before, self.weights, self.rest, values, part.start, part.stop)

        for_each_block(columns, values.shape[1], _COLUMNS, n_jobs)
        return values
