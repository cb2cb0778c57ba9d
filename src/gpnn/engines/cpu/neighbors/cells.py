"""Storage and search loops that every index here shares.

Rows are kept in strips of sixteen, columns one after the other: row i, column k is `strips[i // 16, k, i % 16]`, so
that sixteen rows are compared with a query at a time.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
from numba import uint32, uint64
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array, Neighbors
from gpnn.engines.compiled import inline, jit
from gpnn.engines.compiled.vectors import fma, like, load16, mask_below, store, trailing_zeros
from gpnn.engines.cpu.neighbors.keys import (
    DISTANCE,
    NONE,
    PLACE,
    bits_of,
    decoded,
    everywhere,
    in_table_order,
    just_above,
    smallest,
)
from gpnn.engines.parallel import blocks

STRIP = 16
_GROUP = 4 * STRIP  # rows that `scan` compares at a time
_MOST_ALIKE = 2**16  # rows as far as each other that are looked through, where there is no tree


def row_numbers(n: int) -> NDArray[np.integer]:
    """0 … n−1, in four bytes each where they fit."""
    return np.arange(n, dtype=np.int32 if n < 2**31 else np.int64)


def padded(n: int) -> int:
    """Whole strips, and three more: `scan` reads that far past the last row."""
    return -(-n // STRIP) * STRIP + _GROUP - STRIP


def _is_allocated(rows: NDArray) -> bool:
    """Whether `rows` is what `Rows.allocate` gave: the beginning of a padded buffer."""
    buffer = rows.base
    return (
        isinstance(buffer, np.ndarray)
        and buffer.shape == (padded(len(rows)), rows.shape[1])
        and buffer.dtype == np.float32
        and buffer.flags.c_contiguous
        and buffer.ctypes.data == rows.ctypes.data
    )


@dataclass(frozen=True)
class Rows:
    """n rows of d float32 columns, in strips."""

    strips: NDArray[np.float32]
    n: int

    @staticmethod
    def allocate(n: int, d: int, padding: float = 0.0) -> NDArray[np.float32]:
        """Room for n rows, row by row, in an array that `pack` can turn into strips without a copy. Fill its [:n]."""
        buffer = np.empty((padded(n), d), np.float32)
        buffer[n:] = padding
        return buffer[:n]

    @classmethod
    def pack(cls, rows: NDArray[np.float32]) -> Rows:
        """Takes over what `allocate` gave (other arrays are copied first)."""
        if not _is_allocated(rows):
            fresh = cls.allocate(*rows.shape)
            fresh[:] = rows
            rows = fresh
        buffer = rows.base
        assert isinstance(buffer, np.ndarray)
        return cls(_to_strips(buffer), len(rows))

    @property
    def d(self) -> int:
        return self.strips.shape[1]

    def check(self) -> None:
        """Raise where rows that were read from a file have not the layout that compiled code, unchecked, relies on."""
        if self.n < 1 or self.strips.shape != (padded(self.n) // STRIP, self.d, STRIP):
            raise InvalidInputError(f"{self.n} rows cannot lie in strips of the shape {self.strips.shape}.")

    def take(self, indices: NDArray[np.integer]) -> NDArray[np.float32]:
        """Rows by number, shape (*indices.shape, d)."""
        out = np.empty((*indices.shape, self.d), np.float32)
        _take(self.strips, indices.reshape(-1), out.reshape(-1, self.d))
        return out

    def stretched(self, factors: NDArray[np.float32]) -> Rows:
        return Rows(self.strips * factors[:, None], self.n)

    def nearest(self, X: Array, n_neighbors: int) -> Neighbors:
        """The exact nearest rows, by comparing every row with every query."""
        return decoded(smallest(self.nearer(X, n_neighbors, everywhere(len(X))), n_neighbors), n_neighbors)

    def nearer(self, X: Array, n_neighbors: int, bounds: NDArray[np.float32]) -> NDArray[np.uint64]:
        """Keys of the nearest rows among those nearer than the bounds (q,), which are squared distances."""
        keys = new_keys(len(X), n_neighbors)
        _scan_all(self.strips.reshape(-1), self.n, np.ascontiguousarray(X, np.float32), keys, n_neighbors, bounds)
        return keys


class StoredIndex:
    """What the indexes of this package have in common; subclasses arrange rows, and say how they are searched."""

    order: NDArray[np.integer]
    _rows: Rows

    @property
    def exact(self) -> bool:
        raise NotImplementedError

    def build(self, rows, n_neighbors, probes, n_jobs=None, random_state=0, progress=None) -> Self:
        """As `NeighborIndex` says."""
        index = copy.copy(self)
        index._arrange(rows, n_jobs, random_state, progress)
        index._rows = Rows.pack(rows)
        index._tune(probes, n_neighbors, n_jobs, progress)
        return index

    def _arrange(self, rows: NDArray[np.float32], n_jobs: int | None, seed: int, progress: str | None) -> None:
        """Put the rows in the order in which they will be kept; note that order, and where to look for what."""
        raise NotImplementedError

    def _tune(self, probes: Array, n_neighbors: int, n_jobs: int | None, progress: str | None) -> None:
        """Whatever can be chosen only once the rows are in their place."""

    def check(self) -> None:
        """Raise where an index that was read from a file would send compiled code outside its arrays."""
        self._rows.check()
        if self.order.shape != (self._rows.n,):
            raise InvalidInputError(f"The order of {self._rows.n} rows has the shape {self.order.shape}.")

    def query(self, X: Array, n_neighbors: int) -> Neighbors:
        """As `NeighborIndex` says."""
        keys = self.nearer(X, n_neighbors, everywhere(len(X)))
        return in_table_order(keys, n_neighbors, X, self.order, self.tied if self.exact else None)

    def tied(self, X: Array, squared: NDArray[np.float32], n: int) -> NDArray[np.uint64]:
        """Of the rows exactly so far from the queries, the n that come first in the table: sorted keys (q, n), numbers
        above places."""
        wanted = n
        while True:
            wanted = min(8 * wanted, len(self.order))
            keys = smallest(self.nearer(X, wanted, just_above(squared)), wanted)
            if wanted == len(self.order) or (keys[:, -1] == NONE).all() or wanted > _MOST_ALIKE:
                break
        places = np.minimum(keys & PLACE, np.uint64(len(self.order) - 1))
        numbered = self.order[places.astype(np.int64)].astype(np.uint64) << DISTANCE | places
        numbered[(keys >> DISTANCE).astype(np.uint32) != bits_of(squared)[:, None]] = NONE
        return smallest(numbered, n)

    def nearer(self, X: Array, n_neighbors: int, bounds: NDArray[np.float32]) -> NDArray[np.uint64]:
        """Keys of the nearest rows among those nearer than the bounds (q,), squared distances; in no order."""
        raise NotImplementedError

    def points(self, indices: NDArray[np.integer]) -> NDArray[np.float32]:
        return self._rows.take(indices)

    def exact_query(self, X: Array, n_neighbors: int) -> Neighbors:
        return self._rows.nearest(X, n_neighbors)

    def stretched(self, factors: NDArray[np.float32]) -> Self:
        """The same index after every column is multiplied by its factor (d,), for a fraction of the time of building.

        Answers stay as exact as they were, but for an inverted file, whose recall suffers where factors differ much.
        """
        index = copy.copy(self)
        index._rows = self._rows.stretched(factors)
        return index


def new_keys(n_queries: int, n_neighbors: int) -> NDArray[np.uint64]:
    """Room for each query's candidates: enough that shrinking them back to n_neighbors is rare."""
    return np.empty((n_queries, 2 * n_neighbors + 2 * _GROUP), np.uint64)


@jit
def sort(values):
    """Shell's sort, for a few hundred numbers: numpy's takes a second to compile."""
    for gap in (109, 41, 19, 5, 1):
        for i in range(gap, len(values)):
            value = values[i]
            j = i
            while j >= gap and values[j - gap] > value:
                values[j] = values[j - gap]
                j -= gap
            values[j] = value


@jit
def fill_rest(keys, count):
    """What no candidate was found for sorts last."""
    for i in range(count, len(keys)):
        keys[i] = ~uint64(0)


@inline
def _keep(r0, r1, r2, r3, first, start, stop, keys, count, n_neighbors, bound, scratch, bits):
    """Of the rows from `first` on, at these squared distances, add those nearer than `bound` to the `count` keys."""
    near = (
        mask_below(r0, bound)
        | (mask_below(r1, bound) << uint64(16))
        | (mask_below(r2, bound) << uint64(32))
        | (mask_below(r3, bound) << uint64(48))
    )
    before = start - first
    if before > 0:
        near &= ~uint64(0) << uint64(before)
    inside = stop - first
    if inside < _GROUP:
        near &= (uint64(1) << uint64(inside)) - uint64(1)
    if near:
        store(scratch, 0, r0)
        store(scratch, 16, r1)
        store(scratch, 32, r2)
        store(scratch, 48, r3)
        while near:
            lane = trailing_zeros(near)
            near &= near - uint64(1)
            keys[count] = (uint64(bits[lane]) << uint64(32)) | uint64(first + lane)
            count += 1
        if count > len(keys) - _GROUP:
            count, largest = _shrink(keys, count, n_neighbors)
            bits[0] = uint32(largest >> uint64(32))
            bound = scratch[0]
    return count, bound


@inline
def scan(strips, d, start, stop, query, keys, count, n_neighbors, bound, scratch, bits):
    """Compare rows start … stop−1 with `query` and add those nearer than `bound` (squared) to the `count` keys.

    `scratch` holds 64 float32 numbers, `bits` is the same memory as uint32. Returns the new count and bound.
    """
    width = STRIP * d
    for strip in range(start // STRIP, (stop + STRIP - 1) // STRIP, 4):
        base = strip * width
        r0 = load16(strips, base)
        r0 = r0 - r0
        r1 = r0
        r2 = r0
        r3 = r0
        for k in range(d):
            x = like(r0, query[k])
            at = base + STRIP * k
            d0 = load16(strips, at) - x
            d1 = load16(strips, at + width) - x
            d2 = load16(strips, at + 2 * width) - x
            d3 = load16(strips, at + 3 * width) - x
            r0 = fma(d0, d0, r0)
            r1 = fma(d1, d1, r1)
            r2 = fma(d2, d2, r2)
            r3 = fma(d3, d3, r3)
        count, bound = _keep(r0, r1, r2, r3, STRIP * strip, start, stop, keys, count, n_neighbors, bound, scratch, bits)
    return count, bound


@inline
def _scan_two(strips, d, start, stop, q, queries, keys, counts, n_neighbors, bounds, scratch, bits):
    """The same for the queries q and q + 1, whose arithmetic waits less for rows that are loaded once for both."""
    width = STRIP * d
    for strip in range(start // STRIP, (stop + STRIP - 1) // STRIP, 4):
        base = strip * width
        r0 = load16(strips, base)
        r0 = r0 - r0
        r1, r2, r3, s0, s1, s2, s3 = r0, r0, r0, r0, r0, r0, r0
        for k in range(d):
            x, y = like(r0, queries[q, k]), like(r0, queries[q + 1, k])
            at = base + STRIP * k
            row = load16(strips, at)
            r0, s0 = fma(row - x, row - x, r0), fma(row - y, row - y, s0)
            row = load16(strips, at + width)
            r1, s1 = fma(row - x, row - x, r1), fma(row - y, row - y, s1)
            row = load16(strips, at + 2 * width)
            r2, s2 = fma(row - x, row - x, r2), fma(row - y, row - y, s2)
            row = load16(strips, at + 3 * width)
            r3, s3 = fma(row - x, row - x, r3), fma(row - y, row - y, s3)
        first = STRIP * strip
        counts[q], bounds[q] = _keep(
            r0, r1, r2, r3, first, start, stop, keys[q], counts[q], n_neighbors, bounds[q], scratch, bits
        )
        counts[q + 1], bounds[q + 1] = _keep(
            s0, s1, s2, s3, first, start, stop, keys[q + 1], counts[q + 1], n_neighbors, bounds[q + 1], scratch, bits
        )


@jit
def _shrink(keys, count, n_neighbors):
    """Keep a few more than the n_neighbors smallest keys; returns how many, and a key that none of them exceeds.

    The border is guessed from a sample; where that fails (rows in a regular pattern), the keys are sorted instead.
    """
    step = max(1, count // 64)
    sample = np.empty((count + step - 1) // step, np.uint64)
    for i in range(len(sample)):
        sample[i] = keys[i * step]
    sort(sample)
    rank = len(sample) * n_neighbors // count + 3
    for _ in range(4):
        if rank >= len(sample):
            break
        largest = sample[rank]
        kept = 0
        for i in range(count):
            kept += keys[i] <= largest
        if n_neighbors <= kept < len(keys) - _GROUP:
            kept = 0
            for i in range(count):  # no branch to mispredict: every key is written, few are kept
                key = keys[i]
                keys[kept] = key
                kept += key <= largest
            return kept, largest
        if kept >= n_neighbors:  # far too many: the sample misleads
            break
        rank += 4
    sort(keys[:count])
    return n_neighbors, keys[n_neighbors - 1]


@jit
def _scan_all(strips, n, queries, keys, n_neighbors, limits):
    n_queries, d = queries.shape
    scratch = np.empty(_GROUP, np.float32)
    bits = scratch.view(np.uint32)
    counts = np.zeros(n_queries, np.int64)
    bounds = limits.copy()
    cached = max(_GROUP, 65536 // d // _GROUP * _GROUP)  # rows that stay in cache while the queries pass over them
    for start in range(0, n, cached):
        stop = min(n, start + cached)
        for q in range(0, n_queries - 1, 2):
            _scan_two(strips, d, start, stop, q, queries, keys, counts, n_neighbors, bounds, scratch, bits)
        for q in range(n_queries - n_queries % 2, n_queries):
            counts[q], bounds[q] = scan(
                strips, d, start, stop, queries[q], keys[q], counts[q], n_neighbors, bounds[q], scratch, bits
            )
    for q in range(n_queries):
        fill_rest(keys[q], counts[q])


def _to_strips(buffer: NDArray[np.float32]) -> NDArray[np.float32]:
    """Transpose each sixteen rows in place, some megabytes at a time."""
    d = buffer.shape[1]
    by_row, by_column = buffer.reshape(-1, STRIP, d), buffer.reshape(-1, d, STRIP)
    for block in blocks(len(by_row), max(1, 2**20 // (STRIP * d))):
        by_column[block] = by_row[block].transpose(0, 2, 1).copy()
    return by_column


@jit
def _take(strips, indices, out):
    for i in range(len(indices)):
        row = indices[i]
        for k in range(strips.shape[1]):
            out[i, k] = strips[row // STRIP, k, row % STRIP]
