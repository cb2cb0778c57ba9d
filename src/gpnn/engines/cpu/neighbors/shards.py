"""More rows than memory holds, or one machine: an index cut into shards, each an ordinary one over its own region.

A query looks into the shard whose box lies nearest, then into those whose boxes are nearer than the farthest row found.
Boxes are those of the rows that are there, so it is only for speed how rows were shared out; and rows that are equally
far are taken by their numbers in the table, so answers of exact shards do not depend on how it was cut.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array, Neighbors
from gpnn.engines.cpu.neighbors.cells import NONE, StoredIndex, everywhere, smallest
from gpnn.engines.cpu.neighbors.ivf import IVF

_MORE = 1  # rows that are asked for beyond those wanted, to see whether the last one is as far as others
_MOST_ALIKE = 2**16  # rows as far as each other among which the numbers decide
_FARTHER = 1.03  # by which recall is what it was
_ROUNDING = 1e-5  # of distances from boxes
_MOST_ROWS = 2**32 - 1  # that keys can tell apart
_PLACE = np.uint64(2**32 - 1)
_COUNTING = Lock()


class Joined:
    """Columns (n_k,) of the shards as if they were one: by place, without holding all of it."""

    def __init__(self, parts: Sequence[NDArray]):
        self.parts = list(parts)
        self.starts = np.cumsum([0, *(len(part) for part in parts)])
        self.dtype = np.result_type(*parts)
        self.shape = (int(self.starts[-1]),)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, places) -> Any:
        if isinstance(places, slice):
            places = np.arange(len(self))[places]
        return gathered(np.asarray(places), self.starts, [part.__getitem__ for part in self.parts], (), self.dtype)

    def __array__(self, dtype=None, copy=None) -> NDArray:
        return np.concatenate(self.parts).astype(dtype or self.dtype, copy=False)


def gathered(places: NDArray, starts: NDArray, take: Sequence[Callable], shape: tuple, dtype) -> NDArray:
    """What each part has at those of the places that are its own: (*places.shape, *shape)."""
    part_of = np.searchsorted(starts, places, side="right") - 1
    first = int(part_of.flat[0]) if part_of.size else 0
    if (part_of == first).all():  # as with nearly all queries
        return np.asarray(take[first](places - starts[first]), dtype)
    flat, part_of = places.reshape(-1), part_of.reshape(-1)
    out = np.empty((len(flat), *shape), dtype)
    for k in np.flatnonzero(np.bincount(part_of)).tolist():
        here = np.flatnonzero(part_of == k)
        out[here] = take[k](flat[here] - starts[k])
    return out.reshape(*places.shape, *shape)


class Shards:
    """parts: the indexes; `order` of each are numbers in the whole table. low, high (k, d): the boxes of their rows.

    memory: of mapped shards, as many bytes as may stay resident between questions; None leaves that to the system.
    """

    exact: bool
    files: Sequence[Path] = ()
    """That they are mapped from, one each."""

    def __init__(self, parts: Sequence[StoredIndex], low: Array, high: Array, memory: int | None = None):
        self.parts: list[Any] = list(parts)
        self.low, self.high, self.memory = np.asarray(low), np.asarray(high), memory
        self.order = Joined([part.order for part in self.parts])
        self.exact = all(part.exact for part in self.parts)
        self.queries, self.questions, self.by_one_shard = 0, 0, 0
        """How many there were, how many shards they asked, and how many queries asked one only."""
        if len(self.order) > _MOST_ROWS:
            raise InvalidInputError(f"{len(self.order):,} rows are more than one index can number ({_MOST_ROWS:,}).")

    @property
    def d(self) -> int:
        return self.low.shape[1]

    # --- as every index -----------------------------------------------------------------------------------------------

    def query(self, X: Array, n_neighbors: int) -> Neighbors:
        return self._neighbors(X, n_neighbors, _nearer)

    def exact_query(self, X: Array, n_neighbors: int) -> Neighbors:
        return self._neighbors(X, n_neighbors, lambda part, X, n, bounds, reach: part._rows.nearer(X, n, bounds))

    def points(self, indices: NDArray[np.integer]) -> NDArray[np.float32]:
        return gathered(indices, self.order.starts, [part.points for part in self.parts], (self.d,), np.float32)

    def homes(self, X: Array) -> NDArray[np.int64]:
        """The shard that each query (q, d) asks first."""
        return np.argmin(self._gaps(X), axis=1)

    def _gaps(self, X: Array) -> Array:
        """Squared distances (q, k) of queries from boxes, never more than those from a row inside."""
        gaps = np.zeros((len(X), len(self.parts)))
        for column in range(self.d):
            x = np.asarray(X[:, column], float)[:, None]
            gaps += np.maximum(np.maximum(self.low[:, column] - x, x - self.high[:, column]), 0.0) ** 2
        return gaps * (1 - _ROUNDING)

    def _neighbors(self, X: Array, n_neighbors: int, nearer: Callable) -> Neighbors:
        """The nearest rows, of those that are equally far the ones that come first in the table."""
        keys, left, more = np.empty((len(X), n_neighbors), np.uint64), np.arange(len(X)), _MORE
        while len(left):
            wanted = min(n_neighbors + more, len(self.order))
            found = self._nearest(X[left], wanted, nearer)
            if (found[:, n_neighbors - 1] == NONE).any():
                raise InvalidInputError(f"The shards hold, or looked at, fewer than {n_neighbors} rows. Ask for fewer.")
            squared = found >> np.uint64(32)
            alike = (squared[:, -1] == squared[:, n_neighbors - 1]) & (wanted < len(self.order)) & (more < _MOST_ALIKE)
            ties = np.flatnonzero((squared[:, 1:] == squared[:, :-1]).any(axis=1) & ~alike)
            if len(ties):
                numbers = self.order[np.minimum(found[ties] & _PLACE, np.uint64(len(self.order) - 1)).astype(np.int64)]
                found[ties] = np.take_along_axis(found[ties], np.lexsort((numbers, squared[ties])), axis=1)
            keys[left[~alike]] = found[~alike, :n_neighbors]
            left, more = left[alike], 8 * more
        self._stay_within_memory()
        squared = (keys >> np.uint64(32)).astype(np.uint32).view(np.float32)
        return Neighbors((keys & _PLACE).astype(np.int64), np.sqrt(squared))

    def _nearest(self, X: Array, n_neighbors: int, nearer: Callable) -> NDArray[np.uint64]:
        """Sorted keys (q, n_neighbors), NONE where shards did not find as many."""
        gaps = self._gaps(X)
        home = np.argmin(gaps, axis=1)
        found, asked = np.full((len(X), n_neighbors), NONE), np.ones(len(X), np.int64)
        reach = everywhere(len(X))
        for k in np.unique(home):
            mine = np.flatnonzero(home == k)
            self._ask(k, X, mine, found, reach, nearer)
            if _looks_into_some(self.parts[k]):
                reach[mine] = _FARTHER * self.parts[k].reach(X[mine])  # as far as one looks there, one looks elsewhere
        for k in np.argsort(gaps.min(axis=0)):
            others = np.flatnonzero((gaps[:, k] < _bounds(found)) & (home != k))
            if len(others):
                self._ask(k, X, others, found, reach, nearer)
                asked[others] += 1
        with _COUNTING:
            self.queries += len(X)
            self.questions += int(asked.sum())
            self.by_one_shard += int(np.sum(asked == 1))
        return found

    def _ask(self, k: int, X: Array, queries: NDArray, found: NDArray[np.uint64], reach: Array, nearer) -> None:
        part, n = self.parts[k], min(found.shape[1], len(self.parts[k].order))
        keys = smallest(nearer(part, X[queries], n, _bounds(found[queries]), reach[queries]), n)
        keys[keys != NONE] += np.uint64(self.order.starts[k])  # the lower half is the row's place
        changed = np.flatnonzero(keys[:, 0] != NONE)
        some = queries[changed]
        found[some] = smallest(np.concatenate([found[some], keys[changed]], axis=1), found.shape[1])

    # --- memory -------------------------------------------------------------------------------------------------------

    def _stay_within_memory(self) -> None:
        if self.memory is not None and resident_files() > self.memory:
            self.release()

    def release(self) -> None:
        """Let go of what is mapped; what is touched again comes from the system's cache, or the disk."""
        for mapping in {id(found): found for found in map(_mapping, self._arrays()) if found is not None}.values():
            mapping.madvise(mmap.MADV_DONTNEED)

    def _arrays(self) -> Iterable[NDArray]:
        return (part._rows.strips for part in self.parts)


def _nearer(part, X: Array, n_neighbors: int, bounds: NDArray, reach: NDArray) -> NDArray[np.uint64]:
    """In shards that look into some cells only, reach bounds which."""
    more = (reach,) if _looks_into_some(part) else ()
    return part.nearer(X, n_neighbors, bounds, *more)


def _looks_into_some(part) -> bool:
    return isinstance(part, IVF) and not part.exact


def _bounds(found: NDArray[np.uint64]) -> NDArray[np.float32]:
    """The squared distance of the farthest, infinite where there are too few yet."""
    farthest = (found[:, -1] >> np.uint64(32)).astype(np.uint32).view(np.float32)
    return np.where(found[:, -1] == NONE, everywhere(1), farthest)


def _mapping(array: Any) -> mmap.mmap | None:
    """The mapped file that an array is a view of."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array if hasattr(mmap, "MADV_DONTNEED") else None


def resident_files() -> int:
    """Bytes of mapped files that are in this process's memory; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[2]) * mmap.PAGESIZE
    except (OSError, IndexError):
        return 0


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


def boxes_of(rows: NDArray[np.float32]) -> tuple[Array, Array]:
    return rows.min(axis=0).astype(float), rows.max(axis=0).astype(float)
