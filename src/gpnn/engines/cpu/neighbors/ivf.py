"""Approximate search in high dimension: an inverted file. k-means cells; a query looks into those with near centres."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array
from gpnn.engines.compiled import jit
from gpnn.engines.compiled.vectors import fma, like, load16, store, where_less
from gpnn.engines.cpu.neighbors.cells import (
    STRIP,
    Rows,
    StoredIndex,
    everywhere,
    fill_rest,
    new_keys,
    row_numbers,
    scan,
)
from gpnn.engines.parallel import for_each_block, progress_bar

_BLOCK = 4096
_NOWHERE = 1e18  # a centre that is nobody's nearest
ROUNDS = 8
SAMPLE_PER_CELL = 48
_MANY = 4_000_000  # rows from which on centres are looked for among some only
_FIRST_ROUNDS = 2  # of k-means, among all
_REGIONS, _REGION_ROWS = 128, 65_536
PROBES = 128


class IVF(StoredIndex):
    """`recall`: the share of true neighbours to find; the number of cells looked into is chosen to reach it on probe
    rows, and 1 looks into all. `n_cells`: None for 2√n, at most 8192."""

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

    def sizes(self, n: int) -> tuple[int, int]:
        """How many cells there are to be for n rows, and on how many of those their centres are found."""
        n_cells = max(1, min(self.n_cells or min(8192, int(2 * np.sqrt(n))), n // 16))
        return n_cells, min(n, SAMPLE_PER_CELL * n_cells)

    def _arrange(self, rows, n_jobs, seed, progress) -> None:
        n = len(rows)
        rng = np.random.default_rng(seed)
        n_cells, n_sample = self.sizes(n)
        with progress_bar(ROUNDS * n_sample + n, progress) as bar:
            if n < _MANY or n_cells <= 2 * _REGIONS:
                centres = _k_means(rows, n_sample, n_cells, rng, n_jobs, bar)
                cell_of_row = _nearest_centre(rows, centres, n_jobs, bar)
            else:
                centres, regions = _k_means_by_region(rows, n_sample, n_cells, rng, n_jobs, bar)
                cell_of_row = regions.nearest_centre(rows, centres, n_jobs, bar)
        if n_cells <= 2**16:
            cell_of_row = cell_of_row.astype(np.uint16)  # which are sorted by their digits
        order = row_numbers(n)[np.argsort(cell_of_row, kind="stable")]
        starts = np.concatenate([[0], np.cumsum(np.bincount(cell_of_row, minlength=n_cells))])
        del cell_of_row
        _permute(rows, order.copy())
        self.order, self._starts, self._centres = order, starts, Rows.pack(centres)

    def _tune(self, probes, n_neighbors, n_jobs, progress) -> None:
        self.n_probed = self._cells_needed(probes, n_neighbors, n_jobs, progress)

    def check(self) -> None:
        super().check()
        self._centres.check()
        starts, n_cells = self._starts, self._centres.n
        if starts.shape != (n_cells + 1,) or self._centres.d != self._rows.d or not 1 <= self.n_probed <= n_cells:
            raise InvalidInputError(
                f"{n_cells} cells cannot begin at {starts.shape} rows, {self.n_probed} looked into."
            )
        if starts[0] != 0 or starts[-1] != self._rows.n or (starts[1:] < starts[:-1]).any():
            raise InvalidInputError(f"The cells do not cover the {self._rows.n} rows one after the other.")

    def nearer(
        self, X: Array, n_neighbors: int, bounds: NDArray[np.float32], reach: NDArray[np.float32] | None = None
    ) -> NDArray[np.uint64]:
        """reach (q,): cells whose centres are farther are not looked into; infinite, or None, for no such limit."""
        keys, sizes = new_keys(len(X), n_neighbors), np.diff(self._starts)
        reach = everywhere(len(X)) if reach is None else reach
        near = self._centres.nearest(X, self.n_probed)
        cells = np.where(near.distances <= reach[:, None], near.indices, len(sizes))
        starts = np.append(self._starts, self._starts[-1])  # one more cell, which is empty
        _search(self._rows.strips.reshape(-1), starts, cells,
                np.ascontiguousarray(X, np.float32), keys, n_neighbors, bounds)  # fmt: skip
        # If more rows are asked for than when it was tuned, these cells may hold too few.
        short = np.flatnonzero(np.isinf(reach) & (sizes[near.indices].sum(axis=1) < n_neighbors))
        if len(short):
            keys[short] = self._rows.nearer(X[short], n_neighbors, bounds[short])
        return keys

    def reach(self, X: Array) -> NDArray[np.float32]:
        """How far the centres are (q,) of the cells that queries look into."""
        return self._centres.nearest(X, self.n_probed).distances[:, -1]

    def stretched(self, factors: NDArray[np.float32]) -> Self:
        index = super().stretched(factors)
        index._centres = self._centres.stretched(factors)
        return index

    def _cells_needed(self, probes, n_neighbors, n_jobs, progress) -> int:
        """How many of the nearest cells hold `recall` of the true neighbours of the probes, and enough rows for all."""
        if self.exact:
            return len(self._starts) - 1
        probes = probes[:PROBES]
        ranks = np.empty((len(probes), n_neighbors), np.int64)
        n_cells = len(self._starts) - 1

        def rank(part):
            true = self.exact_query(probes[part], n_neighbors).indices
            cell = np.searchsorted(self._starts, true, side="right") - 1
            nearest_first = self._centres.nearest(probes[part], n_cells).indices
            position = np.empty_like(nearest_first)
            np.put_along_axis(position, nearest_first, np.arange(n_cells)[None], axis=1)
            ranks[part] = np.take_along_axis(position, cell, axis=1)

        for_each_block(rank, len(probes), 16, n_jobs, progress)
        return self.enough(ranks, n_neighbors)

    def enough(self, ranks: NDArray[np.integer], n_neighbors: int) -> int:
        """How many cells to look into, where the true neighbours of probes lie in their ranks-th nearest cells."""
        needed = int(np.quantile(ranks, self.recall, method="higher")) + 1
        # However the cells fall, those looked into must hold n_neighbors rows.
        smallest_first = np.cumsum(np.sort(np.diff(self._starts)))
        return min(len(self._starts) - 1, max(needed, int(np.searchsorted(smallest_first, n_neighbors)) + 1))


def _k_means(rows, n_sample, n_cells, rng, n_jobs, bar) -> NDArray[np.float32]:
    """Lloyd's rounds on a sample, from random rows."""
    sample = rows[np.sort(rng.choice(len(rows), n_sample, replace=False))]
    centres = sample[np.sort(rng.choice(len(sample), n_cells, replace=False))].copy()
    for _ in range(ROUNDS):
        _move(centres, sample, _nearest_centre(sample, centres, n_jobs, bar), rng)
    return centres


def _move(centres: NDArray[np.float32], sample: NDArray[np.float32], cell: NDArray, rng) -> None:
    """Each centre to the mean of its rows; one that has none to a random row."""
    n_cells = len(centres)
    counts = np.bincount(cell, minlength=n_cells)
    sums = np.stack([np.bincount(cell, weights=column, minlength=n_cells) for column in sample.T], axis=1)
    filled = counts > 0
    centres[filled] = sums[filled] / counts[filled, None]
    empty = np.flatnonzero(~filled)
    centres[empty] = sample[rng.choice(len(sample), len(empty), replace=False)]


class Regions:
    """Where to look for the nearest of many centres: each row has a region, and each region some of the centres, those
    that sample rows in it were nearest to. The nearest of these is nearly always the nearest of all."""

    def __init__(self, middles: NDArray[np.float32], region: NDArray, cell: NDArray, n_cells: int):
        """Of the sample's rows: the region, and the nearest centre."""
        self.middles = middles
        pairs = np.unique(region.astype(np.int64) * n_cells + cell)
        self.candidates = np.split(pairs % n_cells, np.searchsorted(pairs, n_cells * np.arange(1, len(middles))))

    def nearest_centre(self, rows, centres, n_jobs, bar) -> NDArray[np.int32]:
        out = np.empty(len(rows), np.int32)
        coarse = _packed(self.middles)
        fine = [_packed(centres[some]) if len(some) else None for some in self.candidates]

        def assign(part: slice) -> None:
            region, some = np.empty(part.stop - part.start, np.int32), rows[part]
            _assign(coarse, some, region)
            order = np.argsort(region.astype(np.uint16), kind="stable")
            ends = np.cumsum(np.bincount(region, minlength=len(fine)))
            sorted_rows, found = some[order], np.empty(len(some), np.int32)
            for k, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                if begin == end:
                    continue
                here = found[begin:end]
                _assign(_packed(centres) if fine[k] is None else fine[k], sorted_rows[begin:end], here)
                found[begin:end] = here if fine[k] is None else self.candidates[k][here]
            out[part.start + order] = found

        for_each_block(assign, len(rows), _REGION_ROWS, n_jobs, bar)
        return out


def _k_means_by_region(rows, n_sample, n_cells, rng, n_jobs, bar) -> tuple[NDArray[np.float32], Regions]:
    """The same rounds; after the first ones, rows look for their centre in their region only."""
    sample = rows[np.sort(rng.choice(len(rows), n_sample, replace=False))]
    middles = _k_means(
        sample, min(n_sample, SAMPLE_PER_CELL * _REGIONS), _REGIONS, rng, n_jobs, progress_bar(None, None)
    )
    region = _nearest_centre(sample, middles, n_jobs, progress_bar(None, None))
    centres = sample[np.sort(rng.choice(len(sample), n_cells, replace=False))].copy()
    for turn in range(ROUNDS):
        if turn < _FIRST_ROUNDS:
            cell = _nearest_centre(sample, centres, n_jobs, bar)
        else:
            cell = Regions(middles, region, cell, n_cells).nearest_centre(sample, centres, n_jobs, bar)
        _move(centres, sample, cell, rng)
    cell = _nearest_centre(sample, centres, n_jobs, progress_bar(None, None))
    return centres, Regions(middles, region, cell, n_cells)


def _nearest_centre(rows, centres, n_jobs, bar) -> NDArray[np.int32]:
    out = np.empty(len(rows), np.int32)
    strips = _packed(centres)
    for_each_block(lambda part: _assign(strips, rows[part], out[part]), len(rows), _BLOCK, n_jobs, bar)
    return out


def _packed(centres: NDArray[np.float32]) -> NDArray[np.float32]:
    """In whole strips, as `_assign` takes them."""
    n_cells, d = centres.shape
    packed = Rows.allocate(n_cells, d, padding=_NOWHERE)
    packed[:] = centres
    return Rows.pack(packed).strips[: -(-n_cells // STRIP)].reshape(-1)


@jit
def _assign(centres, rows, out):
    """The number of the nearest centre of each row; four rows and sixteen centres at a time."""
    n, d = rows.shape
    scratch = np.empty(2 * STRIP, np.float32)
    for i in range(0, n, 4):
        i1, i2, i3 = min(i + 1, n - 1), min(i + 2, n - 1), min(i + 3, n - 1)
        zero = like(load16(centres, 0), 0.0)
        least0 = least1 = least2 = least3 = like(zero, np.inf)
        strip0 = strip1 = strip2 = strip3 = zero
        for strip in range(len(centres) // (STRIP * d)):
            r0 = r1 = r2 = r3 = zero
            for k in range(d):
                c = load16(centres, STRIP * (strip * d + k))
                d0 = c - like(c, rows[i, k])
                d1 = c - like(c, rows[i1, k])
                d2 = c - like(c, rows[i2, k])
                d3 = c - like(c, rows[i3, k])
                r0 = fma(d0, d0, r0)
                r1 = fma(d1, d1, r1)
                r2 = fma(d2, d2, r2)
                r3 = fma(d3, d3, r3)
            here = like(zero, np.float32(strip))
            strip0 = where_less(r0, least0, here, strip0)
            strip1 = where_less(r1, least1, here, strip1)
            strip2 = where_less(r2, least2, here, strip2)
            strip3 = where_less(r3, least3, here, strip3)
            least0 = where_less(r0, least0, r0, least0)
            least1 = where_less(r1, least1, r1, least1)
            least2 = where_less(r2, least2, r2, least2)
            least3 = where_less(r3, least3, r3, least3)
        out[i3] = _first_of_least(least3, strip3, scratch)  # the last first: beyond n, they are all row n − 1
        out[i2] = _first_of_least(least2, strip2, scratch)
        out[i1] = _first_of_least(least1, strip1, scratch)
        out[i] = _first_of_least(least0, strip0, scratch)


@jit
def _first_of_least(least, strip, scratch):
    store(scratch, 0, least)
    store(scratch, STRIP, strip)
    best = 0
    for lane in range(1, STRIP):
        if scratch[lane] < scratch[best]:
            best = lane
    return np.int32(scratch[STRIP + best]) * STRIP + best


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
def _search(strips, starts, cells, queries, keys, n_neighbors, bounds):
    n_queries, d = queries.shape
    scratch = np.empty(64, np.float32)
    bits = scratch.view(np.uint32)
    for q in range(n_queries):
        count = 0
        bound = bounds[q]
        for cell in cells[q]:
            count, bound = scan(strips, d, starts[cell], starts[cell + 1], queries[q], keys[q], count, n_neighbors,
                                bound, scratch, bits)  # fmt: skip
        fill_rest(keys[q], count)
