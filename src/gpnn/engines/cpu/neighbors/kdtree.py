"""Exact search in low dimension: a complete kd-tree whose nodes have sixteen children with bounding boxes."""

from __future__ import annotations

from typing import Self
from weakref import WeakKeyDictionary

import numpy as np
from numba import uint32, uint64
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array
from gpnn.engines.compiled import inline, jit
from gpnn.engines.compiled.vectors import fma, like, load16, mask_below, maximum, store, trailing_zeros
from gpnn.engines.cpu.neighbors.cells import (
    STRIP,
    StoredIndex,
    fill_rest,
    new_keys,
    row_numbers,
    scan,
    sort,
)
from gpnn.engines.cpu.neighbors.keys import bits_of, just_above, smallest
from gpnn.engines.parallel import for_each_block, n_threads, progress_bar

_LEAF = 48  # smallest leaf: three strips
_FANOUT_BITS = 4  # sixteen children
_LEVELS = 16  # more than 2³² rows could need
_DEEPEST = 28  # bits that a leaf's number has in `_search`

_first_of_leaves: WeakKeyDictionary[KDTree, NDArray[np.int64]] = WeakKeyDictionary()
"""The lowest number of the rows in each leaf, of trees that were asked by `tied`."""


class KDTree(StoredIndex):
    """Leaves hold equal numbers of rows (medians split the widest column), so the tree is implicit in their order.

    `slack` > 1 looks only at cells that could hold a row 1/√slack times as far as the farthest found: slack = 2 finds
    about 99 % of the neighbours in 8 dimensions in half the time. 1 is exact.
    """

    _depth: int
    _starts: NDArray[np.int64]
    _boxes: NDArray[np.float32]

    def __init__(self, slack: float = 1.0):
        if not slack >= 1:
            raise InvalidInputError(f"KDTree: slack = {slack} must be at least 1 (exact search).")
        self.slack = slack

    @property
    def exact(self) -> bool:
        return self.slack == 1

    def _arrange(self, rows, n_jobs, seed, progress) -> None:
        n = len(rows)
        depth = max(0, int(np.log2(max(1, n / _LEAF))))
        order = row_numbers(n)
        shared = min(depth, int(np.ceil(np.log2(n_threads(n_jobs)))) + 2)  # then one subtree after another per thread
        with progress_bar(shared + 2**shared, progress) as bar:
            for level in range(shared):
                for part in range(2**level):
                    _split(rows, order, depth, level, level + 1, part)
                bar.update()
            for_each_block(
                lambda part: _split(rows, order, depth, shared, depth, part.start), 2**shared, 1, n_jobs, bar
            )
        starts = _level_starts(depth)
        self.order, self._depth, self._starts, self._boxes = order, depth, starts, _make_boxes(rows, depth, starts)

    def check(self) -> None:
        super().check()
        if not 0 <= self._depth <= _DEEPEST or not np.array_equal(self._starts, _level_starts(self._depth)):
            raise InvalidInputError(f"A tree of depth {self._depth} cannot have levels that begin at {self._starts}.")
        if self._boxes.shape != (self._starts[-1], 2, self._rows.d, STRIP):
            raise InvalidInputError(f"A tree of depth {self._depth} cannot have boxes {self._boxes.shape}.")

    def nearer(self, X: Array, n_neighbors: int, bounds: NDArray[np.float32]) -> NDArray[np.uint64]:
        keys = new_keys(len(X), n_neighbors)
        _search(self._rows.strips.reshape(-1), self._rows.n, self._depth, self._starts, self._boxes,
                np.ascontiguousarray(X, np.float32), keys, n_neighbors, np.float32(self.slack), bounds)  # fmt: skip
        return keys

    def tied(self, X: Array, squared: NDArray[np.float32], n: int) -> NDArray[np.uint64]:
        keys = new_keys(len(X), n + 2 * _LEAF)  # room for what one leaf adds
        if (first := _first_of_leaves.get(self)) is None:
            borders = [_border(self._rows.n, self._depth, leaf) for leaf in range(1 << self._depth)]
            first = _first_of_leaves[self] = np.minimum.reduceat(self.order, borders).astype(np.int64)
        _tied(self._rows.strips.reshape(-1), self._rows.n, self._depth, self._starts, self._boxes, self.order, first,
              np.ascontiguousarray(X, np.float32), bits_of(squared), just_above(squared), keys, n)  # fmt: skip
        return smallest(keys, n)

    def subtrees(self, fewest_rows: int, most: int) -> tuple[NDArray[np.int64], NDArray, NDArray]:
        """The tree cut into cells: where their rows begin (c + 1,), and their boxes' lowest and highest values (c, d).

        At most `most` of them, with some `fewest_rows` rows each or more.
        """
        n, depth, d = self._rows.n, self._depth, self._rows.d
        level = depth
        while level > 0 and (n >> level < fewest_rows or 1 << level > most):
            level -= 1
        starts = np.array([_border(n, depth, cell << (depth - level)) for cell in range((1 << level) + 1)], np.int64)
        leaves = self._boxes[self._starts[-2] :]  # (groups, 2, d, 16)
        siblings = (1 << depth) // len(leaves)
        low, high = (
            extreme(leaves[:, side, :, :siblings].transpose(0, 2, 1).reshape(1 << level, -1, d), axis=1)
            for side, extreme in enumerate((np.min, np.max))
        )
        return starts, low, high

    def stretched(self, factors: NDArray[np.float32]) -> Self:
        tree = super().stretched(factors)
        tree._boxes = self._boxes * factors[:, None]  # splits along columns stay splits along columns
        return tree


# --- building ---------------------------------------------------------------------------------------------------------


@jit
def _border(n, depth, leaf):
    """Where a leaf begins: at a whole strip, or at n after the last."""
    return n if leaf >> depth else ((n * leaf) >> depth) & -STRIP


@jit
def _split(rows, order, depth, first_level, last_level, part):
    """Halve part `part` of the 2^first_level parts, level after level, down to 2^last_level parts."""
    n = len(rows)
    for level in range(first_level, last_level):
        below = depth - level
        parts = 1 << (level - first_level)
        for p in range(part * parts, (part + 1) * parts):
            start = _border(n, depth, p << below)
            stop = _border(n, depth, (p + 1) << below)
            middle = _border(n, depth, (2 * p + 1) << (below - 1))
            if start < middle < stop:
                _select(rows, order, start, stop, _widest_column(rows, start, stop), middle)


@inline
def _widest_column(rows, start, stop):
    low = np.empty(rows.shape[1], rows.dtype)
    high = np.empty(rows.shape[1], rows.dtype)
    for k in range(rows.shape[1]):
        low[k] = rows[start, k]
        high[k] = rows[start, k]
    for i in range(start, stop, max(1, (stop - start) // 128)):  # a sample is enough
        for k in range(rows.shape[1]):
            low[k] = min(low[k], rows[i, k])
            high[k] = max(high[k], rows[i, k])
    widest = 0
    for k in range(rows.shape[1]):
        if high[k] - low[k] > high[widest] - low[widest]:
            widest = k
    return widest


@inline
def _select(rows, order, start, stop, column, target):
    """Rows whose value in `column` is among the smallest come before position `target`, the others after."""
    while stop - start > 1:
        n = stop - start
        step = max(1, n // 255)
        sample = np.empty((n + step - 1) // step, rows.dtype)
        for i in range(len(sample)):
            sample[i] = rows[start + i * step, column]
        sort(sample)
        rank = (target - start) * len(sample) // n
        if n > 255:  # aim a little towards the middle: the side that holds the target is then the small one
            rank += 8 if rank < len(sample) // 4 else -8 if rank > len(sample) * 3 // 4 else 0
        pivot = sample[rank]
        border = _partition(rows, order, start, stop, column, pivot, True)
        if target < border:
            stop = border
            continue
        border = _partition(rows, order, border, stop, column, pivot, False)
        if target < border:  # the target is among rows equal to the pivot
            return
        start = border


@inline
def _partition(rows, order, start, stop, column, pivot, strict):
    """Rows below the pivot (not above it, unless strict) to the front; returns where the others begin."""
    i, j = start, stop - 1
    while True:
        while i <= j and (rows[i, column] < pivot or (not strict and rows[i, column] == pivot)):
            i += 1
        while i <= j and not (rows[j, column] < pivot or (not strict and rows[j, column] == pivot)):
            j -= 1
        if i >= j:
            return i
        for k in range(rows.shape[1]):
            rows[i, k], rows[j, k] = rows[j, k], rows[i, k]
        order[i], order[j] = order[j], order[i]
        i += 1
        j -= 1


def _level_starts(depth: int) -> NDArray[np.int64]:
    """Boxes come in groups of up to sixteen siblings: level l's groups are starts[l] … starts[l+1]−1.

    The root's group has 2^(depth mod 4) members (sixteen if that is one), every other group sixteen.
    """
    groups = [1] + [1 << bits for bits in range(_root_bits(depth), depth, _FANOUT_BITS)]
    return np.cumsum([0, *groups])


@jit
def _root_bits(depth):
    return depth % _FANOUT_BITS or min(depth, _FANOUT_BITS)


def _make_boxes(rows: NDArray[np.float32], depth: int, starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """(groups, 2, d, 16): the lowest and highest value of each column, of each of up to sixteen siblings."""
    boxes = np.empty((starts[-1], 2, rows.shape[1], STRIP), np.float32)
    boxes[:, 0], boxes[:, 1] = np.inf, -np.inf  # siblings that are not there are infinitely far
    borders = [_border(len(rows), depth, leaf) for leaf in range(1 << depth)]
    for side, extreme in enumerate((np.minimum, np.maximum)):
        values = extreme.reduceat(rows, borders)  # of the leaves
        for level in range(len(starts) - 2, -1, -1):
            groups = boxes[starts[level] : starts[level + 1], side]
            siblings = values.reshape(len(groups), -1, rows.shape[1]).transpose(0, 2, 1)
            groups[..., : siblings.shape[2]] = siblings
            values = extreme.reduce(siblings, axis=2)
    return boxes


# --- searching --------------------------------------------------------------------------------------------------------


@inline
def _box_distances(flat, base, query):
    """Squared, of a query from the boxes of a node's children: 0 inside."""
    d = len(query)
    zero = like(load16(flat, base), 0.0)
    r2 = zero
    for k in range(d):
        x = like(zero, query[k])
        low, high = load16(flat, base + STRIP * k), load16(flat, base + STRIP * (d + k))
        gap = maximum(maximum(low - x, x - high), zero)
        r2 = fma(gap, gap, r2)
    return r2


@jit
def _search(strips, n, depth, starts, boxes, queries, keys, n_neighbors, slack, bounds):
    n_queries, d = queries.shape
    last = len(starts) - 2
    children_of_root = (uint64(1) << uint64(1 << _root_bits(depth))) - uint64(1)
    flat = boxes.reshape(-1)
    scratch = np.empty(64, np.float32)
    bits = scratch.view(np.uint32)
    # Nodes to visit, the nearest on top: squared distance of the box (its bits), level, number within the level.
    stack = np.empty(STRIP * _LEVELS, np.uint64)
    for q in range(n_queries):
        query = queries[q]
        bound = bounds[q]
        count = 0
        stack[0] = 0
        top = 1
        while top > 0:
            top -= 1
            entry = stack[top]
            bits[0] = uint32(entry >> uint64(32))
            if scratch[0] * slack >= bound:
                continue
            level = np.int64((entry >> uint64(28)) & uint64(15))
            node = np.int64(entry & uint64((1 << 28) - 1))
            if level > last:
                count, bound = scan(strips, d, _border(n, depth, node), _border(n, depth, node + 1), query,
                                    keys[q], count, n_neighbors, bound, scratch, bits)  # fmt: skip
                continue
            base = (starts[level] + node) * 2 * d * STRIP
            r2 = _box_distances(flat, base, query)
            near = mask_below(r2 * like(r2, slack), bound)
            if level == 0:  # whatever the boxes say: a query that is not a number is near to all of them
                near &= children_of_root
            store(scratch, 0, r2)
            below = top
            while near:
                lane = trailing_zeros(near)
                near &= near - uint64(1)
                entry = (
                    (uint64(bits[lane]) << uint64(32))
                    | (uint64(level + 1) << uint64(28))
                    | (uint64(node) * uint64(STRIP) + lane)
                )
                i = top
                while i > below and stack[i - 1] < entry:
                    stack[i] = stack[i - 1]
                    i -= 1
                stack[i] = entry
                top += 1
        fill_rest(keys[q], count)


@jit
def _tied(strips, n, depth, starts, boxes, order, first_of_leaf, queries, wanted, bounds, keys, n_first):
    """Of the rows at the squared distance `wanted` (its bits) the n_first with the lowest numbers: number above place.

    `bounds`: just above. Leaves are looked into in no order, and those whose numbers are all too high not at all: rows
    that are equal to each other may fill thousands.
    """
    n_queries, d = queries.shape
    last = len(starts) - 2
    children_of_root = (uint64(1) << uint64(1 << _root_bits(depth))) - uint64(1)
    flat = boxes.reshape(-1)
    scratch = np.empty(64, np.float32)
    bits = scratch.view(np.uint32)
    near_rows = np.empty(8 * _LEAF, np.uint64)  # of one leaf
    levels, nodes = np.empty(STRIP * _LEVELS, np.int64), np.empty(STRIP * _LEVELS, np.int64)
    for q in range(n_queries):
        query = queries[q]
        count = 0
        highest = ~uint64(0)
        levels[0] = nodes[0] = 0
        top = 1
        while top > 0:
            top -= 1
            level, node = levels[top], nodes[top]
            if level > last:
                if uint64(first_of_leaf[node]) > highest >> uint64(32):
                    continue
                found, _ = scan(strips, d, _border(n, depth, node), _border(n, depth, node + 1), query, near_rows, 0,
                                n_first, bounds[q], scratch, bits)  # fmt: skip
                for i in range(found):
                    place = near_rows[i] & uint64(0xFFFFFFFF)
                    key = (uint64(order[place]) << uint64(32)) | place
                    if uint32(near_rows[i] >> uint64(32)) == wanted[q] and key < highest:
                        keys[q, count] = key
                        count += 1
                if count > 2 * n_first + _LEAF:
                    sort(keys[q, :count])
                    count, highest = n_first, keys[q, n_first - 1]
                continue
            base = (starts[level] + node) * 2 * d * STRIP
            r2 = _box_distances(flat, base, query)
            near = mask_below(r2, bounds[q])
            if level == 0:
                near &= children_of_root
            while near:
                lane = trailing_zeros(near)
                near &= near - uint64(1)
                levels[top] = level + 1
                nodes[top] = node * STRIP + np.int64(lane)
                top += 1
        fill_rest(keys[q], count)
