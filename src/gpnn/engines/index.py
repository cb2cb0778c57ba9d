"""What an index of rows is to whoever asks it; the indexes themselves are in `engines.cpu.neighbors`, with numba."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array, Neighbors


class NeighborIndex(Protocol):
    order: NDArray[np.integer]
    """Row i of the index is row order[i] of what it was built from."""

    @property
    def exact(self) -> bool:
        """Whether every answer is the true one."""
        ...

    def build(
        self,
        rows: NDArray[np.float32],
        n_neighbors: int,
        probes: Array,
        n_jobs: int | None = None,
        random_state: int = 0,
        progress: str | None = None,
    ) -> NeighborIndex:
        """A new index over `rows` (n, d), which it may overwrite.

        It may tune itself for n_neighbors, on `probes`: rows like those that will be asked for. `progress` names its
        progress bar; None shows none.
        """
        ...

    def query(self, X: Array, n_neighbors: int) -> Neighbors:
        """The nearest rows of each query (q, d), nearest first. Runs in the calling thread; safe from several."""
        ...

    def exact_query(self, X: Array, n_neighbors: int) -> Neighbors:
        """The true answer, however slow; only asked for where `exact` is False."""
        ...

    def points(self, indices: NDArray[np.integer]) -> NDArray[np.float32]:
        """Rows by number: (…,) → (…, d)."""
        ...
