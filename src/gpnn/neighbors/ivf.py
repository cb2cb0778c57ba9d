"""Approximate search in high dimension: an inverted file. k-means cells; a query looks into those with near centres."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from gpnn._compiled import jit
from gpnn._parallel import for_each_block
from gpnn._types import Array, Neighbors
from gpnn.errors import InvalidInputError
from gpnn.neighbors.cells import Rows, StoredIndex, fill_rest, new_keys, row_numbers, scan, sorted_neighbors

_BLOCK = 4096
_ROUNDS = 8
_SAMPLE_PER_CELL = 48
_PROBES = 128


class IVF(StoredIndex):
    """`recall`: the share of true neighbours to find; the number of cells looked into is chosen to reach it on probe
    rows, and 1 looks into all. `n_cells`: None for 2√n, at most 4096."""

    n_probed: int
    _starts: NDArray[np.int64]
    _centres: Rows

    def __init__(self, recall: float = 0.99, n_cells: int | None = None):
        if not 0 < recall <= 1:
            raise InvalidInputError(f"IVF: recall = {recall} must be above 0 and at most 1.")
        self.recall, self.n_cells = recall, n_cells

    @property
    def exact(self) -> bool:
        return self.recall == 1

    def build(
        self,
        rows: NDArray[np.float32],
        n_neighbors: int,
        probes: Array,
        n_jobs: int | None = None,
        random_state: int = 0,
        progress: str | None = None,
    ) -> IVF:
        n = len(rows)
        rng = np.random.default_rng(random_state)
        n_cells = max(1, min(self.n_cells or min(4096, int(2 * np.sqrt(n))), n // 16))
        centres = _k_means(rows, n_cells, rng, n_jobs, progress)
        cell_of_row = _nearest_centre(rows, centres, n_jobs, progress)
        order = row_numbers(n)[np.argsort(cell_of_row, kind="stable")]
        starts = np.concatenate([[0], np.cumsum(np.bincount(cell_of_row, minlength=n_cells))])
        del cell_of_row
        _permute(rows, order.copy())

        index = copy.copy(self)
        index.order, index._starts = order, starts
        index._rows, index._centres = Rows.pack(rows), Rows.pack(centres)
        index.n_probed = index._cells_needed(probes, n_neighbors, n_jobs)
        return index

    def query(self, X: Array, n_neighbors: int) -> Neighbors:
        keys = new_keys(len(X), n_neighbors)
        cells = self._centres.nearest(X, self.n_probed).indices
        _search(self._rows.strips.reshape(-1), self._starts, cells,
                np.ascontiguousarray(X, np.float32), keys, n_neighbors)  # fmt: skip
        return sorted_neighbors(keys, n_neighbors)

    def _cells_needed(self, probes, n_neighbors, n_jobs) -> int:
        """How many of the nearest cells hold `recall` of the true neighbours of the probes, and enough rows for all."""
        if self.exact:
            return len(self._starts) - 1
        probes = probes[:_PROBES]
        ranks = np.empty((len(probes), n_neighbors), np.int64)
        n_cells = len(self._starts) - 1

        def rank(part):
            true = self.exact_query(probes[part], n_neighbors).indices
            cell = np.searchsorted(self._starts, true, side="right") - 1
            nearest_first = self._centres.nearest(probes[part], n_cells).indices
            position = np.empty_like(nearest_first)
            np.put_along_axis(position, nearest_first, np.arange(n_cells)[None], axis=1)
            ranks[part] = np.take_along_axis(position, cell, axis=1)

        for_each_block(rank, len(probes), 16, n_jobs)
        needed = int(np.quantile(ranks, self.recall, method="higher")) + 1
        # However the cells fall, those looked into must hold n_neighbors rows.
        smallest_first = np.cumsum(np.sort(np.diff(self._starts)))
        return min(n_cells, max(needed, int(np.searchsorted(smallest_first, n_neighbors)) + 1))


def _k_means(rows, n_cells, rng, n_jobs, progress) -> NDArray[np.float32]:
    """Lloyd's rounds on a sample, from random rows."""
    sample = rows[np.sort(rng.choice(len(rows), min(len(rows), _SAMPLE_PER_CELL * n_cells), replace=False))]
    centres = sample[np.sort(rng.choice(len(sample), n_cells, replace=False))].copy()
    for _ in range(_ROUNDS):
        cell = _nearest_centre(sample, centres, n_jobs, progress)
        counts = np.bincount(cell, minlength=n_cells)
        sums = np.stack([np.bincount(cell, weights=column, minlength=n_cells) for column in sample.T], axis=1)
        filled = counts > 0
        centres[filled] = sums[filled] / counts[filled, None]
        empty = np.flatnonzero(~filled)
        centres[empty] = sample[rng.choice(len(sample), len(empty), replace=False)]
    return centres


def _nearest_centre(rows, centres, n_jobs, progress) -> NDArray[np.int32]:
    """argmin_c |x − c|² = argmin_c (|c|² − 2x·c), a matrix product per block of rows."""
    out = np.empty(len(rows), np.int32)
    factors = np.vstack([-2 * centres.T, np.einsum("cd,cd->c", centres, centres)[None]]).astype(np.float32)
    # Never more than 8 MiB of products at a time; block sizes do not depend on n_jobs, so neither do roundings.
    size = max(64, min(_BLOCK, 2**21 // len(centres)))

    def assign(part):
        block = rows[part]
        with_one = np.concatenate([block, np.ones((len(block), 1), np.float32)], axis=1)
        out[part] = np.argmin(with_one @ factors, axis=1)

    for_each_block(assign, len(rows), size, n_jobs, progress)
    return out


@jit
def _permute(rows, order):
    """rows[i] ← rows[order[i]] in place, cycle by cycle; `order` is used up."""
    held = np.empty(rows.shape[1], rows.dtype)
    for first in range(len(order)):
        if order[first] < 0:
            continue
        for k in range(len(held)):
            held[k] = rows[first, k]
        i = first
        while order[i] != first:
            source = order[i]
            for k in range(len(held)):
                rows[i, k] = rows[source, k]
            order[i] = -1
            i = source
        for k in range(len(held)):
            rows[i, k] = held[k]
        order[i] = -1


@jit
def _search(strips, starts, cells, queries, keys, n_neighbors):
    n_queries, d = queries.shape
    scratch = np.empty(64, np.float32)
    bits = scratch.view(np.uint32)
    for q in range(n_queries):
        count = 0
        bound = np.float32(np.inf)
        for cell in cells[q]:
            count, bound = scan(strips, d, starts[cell], starts[cell + 1], queries[q], keys[q], count, n_neighbors,
                                bound, scratch, bits)  # fmt: skip
        fill_rest(keys[q], count)
