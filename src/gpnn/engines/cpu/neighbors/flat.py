"""Exact search in any dimension: every row is compared with every query, a cache-full of rows at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array, Neighbors
from gpnn.engines.cpu.neighbors.cells import Rows, StoredIndex, row_numbers


class Flat(StoredIndex):
    """No structure at all: quick to build, and the time of a query is proportional to n·d."""

    @property
    def exact(self) -> bool:
        return True

    def build(
        self,
        rows: NDArray[np.float32],
        n_neighbors: int,
        probes: Array,
        n_jobs: int | None = None,
        random_state: int = 0,
        progress: str | None = None,
    ) -> Flat:
        index = Flat()
        index.order = row_numbers(len(rows))
        index._rows = Rows.pack(rows)
        return index

    def query(self, X: Array, n_neighbors: int) -> Neighbors:
        return self.exact_query(X, n_neighbors)
