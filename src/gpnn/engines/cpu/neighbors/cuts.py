"""How rows are shared out to shards: a tree of cuts, the regions between them, and the rows on a region's border."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array
from gpnn.engines.compiled import jit

_ROUNDING = 1e-5  # of squared distances in float32, and more


class Shared(NamedTuple):
    """Rows as they will be kept: whitened, targets, numbers in the table, and their shards; halo (2, h): rows that
    other shards hold too, and which."""

    rows: NDArray[np.float32]
    y: Array
    numbers: NDArray[np.int64]
    shard: NDArray[np.int32]
    halo: NDArray[np.int64]


@dataclass(frozen=True)
class Regions:
    """Of each shard, the box (k, d) that its cuts leave, infinite where there are none. depth (k,): a shard also has
    all rows of others that are nearer than this to its region, its halo; 0 for none."""

    low: Array
    high: Array
    depth: Array

    def reach(self, X: Array, shard: NDArray[np.integer]) -> Array:
        """How far from each query (q, d) there can be no row that its shard does not have (q,)."""
        inside, outside = np.minimum(X - self.low[shard], self.high[shard] - X).min(axis=1), self.gaps(X, shard)
        return (self.depth[shard] + np.where(outside > 0, -outside, inside)) * (1 - _ROUNDING)

    def gaps(self, X: Array, shard: NDArray[np.integer]) -> Array:
        """How far rows (n, d) are from a shard's region (n,)."""
        outside = np.maximum(np.maximum(self.low[shard] - X, X - self.high[shard]), 0.0)
        return np.sqrt((outside**2).sum(axis=1))


@dataclass(frozen=True)
class Cuts:
    """How rows are shared out: a tree of cuts, each through the widest column of its region, equal shares on each side.

    Node i sends rows whose value in its column is below its cut to left[i], above it to right[i]; of those equal to it
    a share, drawn by their numbers in the table. Negative: shard −1 − i.
    """

    column: NDArray[np.int64]
    cut: NDArray[np.float64]
    share: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]

    @classmethod
    def learn(cls, rows: NDArray[np.float32], n_shards: int) -> Cuts:
        """From a sample (n, d) of the rows, whitened."""
        nodes: list[list[float]] = []
        made = 0

        def grow(some: NDArray, n: int) -> int:
            nonlocal made
            if n == 1:
                made += 1
                return -made
            node = len(nodes)
            nodes.append([])
            low, high = np.quantile(rows[some], [0.01, 0.99], axis=0) if len(some) else np.zeros((2, rows.shape[1]))
            column, n_left = int(np.argmax(high - low)), n // 2
            values = np.sort(rows[some, column].astype(float))
            target = len(values) * n_left / n
            cut = float(values[min(int(target), len(values) - 1)]) if len(values) else 0.0
            below, upto = (int(np.searchsorted(values, cut, side)) for side in ("left", "right"))
            share = (target - below) / max(upto - below, 1)
            to_left = _goes_left(node, rows[some, column], cut, share, some)
            nodes[node] = [column, cut, share, grow(some[to_left], n_left), grow(some[~to_left], n - n_left)]
            return node

        grow(np.arange(len(rows)), n_shards)
        table = np.array(nodes, float).reshape(-1, 5)
        return cls(table[:, 0].astype(int), table[:, 1], table[:, 2], table[:, 3].astype(int), table[:, 4].astype(int))

    @property
    def n_shards(self) -> int:
        return len(self.column) + 1

    def __call__(self, rows: NDArray[np.float32], numbers: NDArray[np.integer]) -> NDArray[np.int32]:
        """The shard of each row (n, d) with that number in the table."""
        shard = np.zeros(len(rows), np.int32)
        todo = [(0, np.arange(len(rows)))] if len(self.column) else []
        while todo:
            node, some = todo.pop()
            if node < 0:
                shard[some] = -1 - node
                continue
            left = _goes_left(node, rows[some, self.column[node]], self.cut[node], self.share[node], numbers[some])
            todo += [(int(self.left[node]), some[left]), (int(self.right[node]), some[~left])]
        return shard

    def regions(self, d: int) -> Regions:
        low, high = np.full((2, self.n_shards, d), [[[-np.inf]], [[np.inf]]])
        todo = [(0, np.full(d, -np.inf), np.full(d, np.inf))] if len(self.column) else []
        while todo:
            node, below, above = todo.pop()
            if node < 0:
                low[-1 - node], high[-1 - node] = below, above
                continue
            here, cut = np.arange(d) == self.column[node], self.cut[node]
            todo += [(int(self.left[node]), below, np.where(here, cut, above))]
            todo += [(int(self.right[node]), np.where(here, cut, below), above)]
        return Regions(low, high, np.zeros(self.n_shards))

    def with_halos(self, rows: NDArray[np.float32], farthest: Array, share: float) -> Regions:
        """Regions with halos so deep that of queries like rows[:q], whose farthest neighbours are so far away (q,), a
        share finds all of them in its shard. No halo has more rows than are the shard's own: where most rows of a table
        lie in one place, every shard would have them all."""
        shard, regions = self(rows, np.arange(len(rows))), self.regions(rows.shape[1])
        home, depth = shard[: len(farthest)], regions.depth
        missing = farthest * (1 + 3 * _ROUNDING) - regions.reach(rows[: len(farthest)], home)
        for k in np.unique(home):
            depth[k] = max(0.0, np.quantile(missing[home == k], share))
        which, of = self.halo(rows, shard, regions)
        gaps, own = regions.gaps(rows[which], of), np.bincount(shard, minlength=len(depth))
        for k in np.flatnonzero(np.bincount(of, minlength=len(depth)) > own):
            depth[k] = np.sort(gaps[of == k])[own[k]]
        return regions

    def halo(self, rows: NDArray[np.float32], shard: NDArray[np.int32], regions: Regions) -> NDArray[np.int64]:
        """Rows that belong to halos, and those shards (2, h)."""
        if not len(self.column) or not regions.depth.any():
            return np.zeros((2, 0), np.int64)
        room = len(rows)
        while True:
            pairs = np.empty((2, room), np.int64)
            found = _halo(
                np.ascontiguousarray(rows), shard, self.column, self.cut, self.left, self.right, regions.low,
                regions.high, regions.depth, pairs,
            )  # fmt: skip
            if found <= room:
                return pairs[:, :found]
            room = found


@jit
def _halo(rows, shard, column, cut, left, right, low, high, depth, pairs):
    """Fills `pairs` as far as there is room; returns how many there are."""
    deepest = depth.max()
    stack = np.empty(len(column) + 2, np.int64)
    found = 0
    for i in range(len(rows)):
        stack[0] = 0
        top = 1
        while top > 0:
            top -= 1
            node = stack[top]
            if node >= 0:
                x = rows[i, column[node]]
                if x - deepest <= cut[node]:
                    stack[top] = left[node]
                    top += 1
                if x + deepest >= cut[node]:
                    stack[top] = right[node]
                    top += 1
                continue
            k = -1 - node
            if k == shard[i]:
                continue
            squared = 0.0
            for j in range(rows.shape[1]):
                gap = max(low[k, j] - rows[i, j], rows[i, j] - high[k, j], 0.0)
                squared += gap * gap
            if squared < depth[k] * depth[k]:
                if found < pairs.shape[1]:
                    pairs[0, found] = i
                    pairs[1, found] = k
                found += 1
    return found


def _goes_left(node: int, values: Array, cut: float, share: float, numbers: NDArray) -> NDArray[np.bool_]:
    left = values < cut
    equal = np.flatnonzero(values == cut)
    left[equal] = _at_random(node, numbers[equal]) < share
    return left


def _at_random(seed: int, numbers: NDArray[np.integer]) -> Array:
    """A number from 0 to 1 for each, the same whenever and wherever it is asked for (as splitmix64 mixes bits)."""
    x = (numbers.astype(np.uint64) << np.uint64(20)) + np.uint64(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
