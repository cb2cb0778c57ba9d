"""More rows than memory holds, or one machine: an index cut into shards, each an ordinary one over its own region.

A query looks into the shard whose box lies nearest, then into those whose boxes are nearer than the farthest row found;
not so if its shard has, with the rows on its border, all that are as near. Boxes are those of the rows that are there,
so it is only for speed how rows were shared out; and rows that are equally far are taken by their numbers in the table,
so answers of exact shards do not depend on how it was cut.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.types import Array, Neighbors
from gpnn.engines.cpu.neighbors.cells import StoredIndex
from gpnn.engines.cpu.neighbors.cuts import Regions
from gpnn.engines.cpu.neighbors.ivf import IVF
from gpnn.engines.cpu.neighbors.keys import (
    DISTANCE,
    NONE,
    PLACE,
    everywhere,
    in_table_order,
    smallest,
    squared_of,
)

_FARTHER = 1.03  # by which recall is what it was
_ROUNDING = 1e-5  # of distances from boxes
_MOST_ROWS = 2**32 - 1  # that keys can tell apart
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


class Once:
    """Does something to each file, when it is first needed."""

    def __init__(self, files: Sequence[Path], do: Callable[[Path], None]):
        self._left, self._do = dict(enumerate(files)), do

    def __call__(self, k: int) -> None:
        if (file := self._left.get(k)) is not None:
            self._do(file)
            self._left.pop(k, None)


class Shards:
    """parts: the indexes; `order` of each are numbers in the whole table. low, high (k, d): the boxes of their rows.

    memory: of mapped shards, as many bytes as may stay resident between questions; None leaves that to the system.
    regions: where shards are at home, if they also have rows of others on their borders; own (k,): how many are theirs.
    """

    exact: bool
    folder: Path | None = None
    made: Sequence[Any] = ()
    """Where they are mapped from: a file each, and what the head says of it (`files.shards`)."""
    check: Callable[[int], None] = staticmethod(lambda k: None)
    """Called with the number of a shard before it is asked: it raises where the file is damaged."""

    def __init__(
        self,
        parts: Sequence[StoredIndex],
        low: Array,
        high: Array,
        memory: int | None = None,
        regions: Regions | None = None,
        own: Sequence[int] | None = None,
    ):
        self.parts: list[Any] = list(parts)
        self.low, self.high, self.memory, self.regions = np.asarray(low), np.asarray(high), memory, regions
        self.own = [len(part.order) for part in self.parts] if own is None else list(own)
        self.order = Joined([part.order for part in self.parts])
        self.exact = all(part.exact for part in self.parts)
        self.queries, self.questions, self.by_one_shard = 0, 0, 0
        """How many there were, how many shards they asked, and how many queries asked one only."""
        if len(self.order) > _MOST_ROWS:
            raise InvalidInputError(f"{len(self.order):,} rows are more than one index can number ({_MOST_ROWS:,}).")

    @property
    def d(self) -> int:
        return self.low.shape[1]

    @property
    def files(self) -> list[Path]:
        return [self.folder / one.file for one in self.made] if self.folder is not None else []

    @property
    def n(self) -> int:
        """Rows, each counted once."""
        return sum(self.own)

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
        found = self._nearest(X, min(n_neighbors + 1, self.n), nearer)  # one more shows whether others are as far
        neighbors = in_table_order(found, n_neighbors, X, self.order, self.tied if self.exact else None)
        self._stay_within_memory()
        return neighbors

    def tied(self, X: Array, squared: NDArray[np.float32], n: int) -> NDArray[np.uint64]:
        """As `StoredIndex.tied`."""
        found, gaps = np.full((len(X), n), NONE), self._gaps(X)
        for k, part in enumerate(self.parts):
            some = np.flatnonzero(gaps[:, k] <= squared)
            if len(some):
                self.check(k)
                keys = part.tied(X[some], squared[some], min(n, len(part.order)))
                keys[keys != NONE] += np.uint64(self.order.starts[k])
                both = np.sort(np.concatenate([found[some], keys], axis=1), axis=1)
                both[:, 1:][both[:, 1:] >> DISTANCE == both[:, :-1] >> DISTANCE] = NONE  # one row, in two shards
                found[some] = smallest(both, n)
        return found

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
        if self.regions is not None:
            gaps[_bounds(found) < np.maximum(self.regions.reach(X, home), 0.0) ** 2] = np.inf  # their shards have all
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
        self.check(int(k))
        part, n = self.parts[k], min(found.shape[1], len(self.parts[k].order))
        keys = smallest(nearer(part, X[queries], n, _bounds(found[queries]), reach[queries]), n)
        keys[keys != NONE] += np.uint64(self.order.starts[k])  # the lower half is the row's place
        changed = np.flatnonzero(keys[:, 0] != NONE)
        some = queries[changed]
        both = np.concatenate([found[some], keys[changed]], axis=1)
        first = self.regions is None or (both[:, 0] == NONE).all()  # no row of another shard, or none yet
        found[some] = smallest(both if first else self._once(both), found.shape[1])

    def _once(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Without rows that come a second time, from another shard: as far as the first, and of the same number."""
        keys.sort(axis=1)
        places = np.minimum(keys & PLACE, np.uint64(len(self.order) - 1)).astype(np.int64)
        numbers, squared = self.order[places], keys >> DISTANCE
        turns = np.lexsort((numbers, squared))
        keys, numbers, squared = (np.take_along_axis(of, turns, axis=1) for of in (keys, numbers, squared))
        keys[:, 1:][(numbers[:, 1:] == numbers[:, :-1]) & (squared[:, 1:] == squared[:, :-1])] = NONE
        return keys

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
    return np.where(found[:, -1] == NONE, everywhere(1), squared_of(found[:, -1]))


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


def boxes_of(rows: NDArray[np.float32], some: NDArray[np.bool_] | bool = True) -> tuple[Array, Array]:
    """The lowest and highest values of some of the rows."""
    where = np.broadcast_to(np.reshape(some, (-1, 1)), rows.shape)
    low, high = rows.min(axis=0, initial=np.inf, where=where), rows.max(axis=0, initial=-np.inf, where=where)
    return low.astype(float), high.astype(float)
