"""Exact search in any dimension: every row is compared with every query, a cache-full of rows at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array, Neighbors
from gpnn.engines.cpu.neighbors.cells import StoredIndex, row_numbers


class Flat(StoredIndex):
    """No structure at all: quick to build, and the time of a query is proportional to n·d."""

    @property
    def exact(self) -> bool:
        return True

    def _arrange(self, rows, n_jobs, seed, progress) -> None:
        self.order = row_numbers(len(rows))

    def query(self, X: Array, n_neighbors: int) -> Neighbors:
        """Rows are met in the order of the table, and of those that are equally far the first stay."""
        return self._rows.nearest(X, n_neighbors)

    def nearer(self, X: Array, n_neighbors: int, bounds: NDArray[np.float32]) -> NDArray[np.uint64]:
        return self._rows.nearer(X, n_neighbors, bounds)
