"""Exact search in any dimension: every row is compared with every query, a cache-full of rows at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpnn._types import Array, Neighbors
from gpnn.neighbors.cells import Rows


class Flat:
    exact = True

    def build(
        self, rows: NDArray[np.float32], n_neighbors: int, probes: Array, n_jobs: int | None = None, random_state: int = 0
    ) -> Flat:
        index = Flat()
        index.order = np.arange(len(rows), dtype=np.int32 if len(rows) < 2**31 else np.int64)
        index._rows = Rows.pack(rows)
        return index

    def query(self, X: Array, n_neighbors: int) -> Neighbors:
        return self._rows.nearest(X, n_neighbors)

    exact_query = query

    def points(self, indices: NDArray[np.integer]) -> NDArray[np.float32]:
        return self._rows.take(indices)
