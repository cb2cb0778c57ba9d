"""An index that lives with its rows: batches that came later are indexes of their own, searched one after the other.

The largest is searched first, and the others only for rows that are nearer than what it found. Few rows at a time are
collected in a flat tail; when it is full it becomes a segment, and a segment that has grown to a third of the one
before is merged with it: as many segments as rows have digits, however they came (a log-structured merge tree). Rows
that are forgotten are put farther away than any other, and are gone when their segment is built anew.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array, Neighbors
from gpnn.engines.cpu.neighbors.cells import STRIP, Rows, StoredIndex
from gpnn.engines.cpu.neighbors.flat import Flat
from gpnn.engines.cpu.neighbors.keys import NONE, decoded, everywhere, smallest, squared_of

_TAIL = 1024  # rows that every query is compared with
_GONE = 1e19  # farther than any query can be, and its square still fits float32
_GROWTH = 3  # times as large as the next is a segment, at least

Build = Callable[[NDArray[np.float32]], StoredIndex]
"""Of rows, which may be overwritten."""


class Grown:
    """A column that values are appended to, in room that doubles. What was seen of it before stays as it was."""

    def __init__(self, values: NDArray):
        self.room, self.used = values, len(values)

    def extended(self, n: int, values: NDArray) -> Grown:
        """The first n and then these."""
        if n != self.used:  # something else went on from here already
            return Grown(self.room[:n].copy()).extended(n, values)
        if n + len(values) > len(self.room):
            room = np.empty(2 * (n + len(values)), self.room.dtype)
            room[:n] = self.room[:n]
            self.room = room
        self.room[n : n + len(values)] = values
        self.used = n + len(values)
        return self


class Segments:
    """columns: what belongs to the rows, by name, each (n,) in their order; "order" is their numbers."""

    def __init__(self, first: StoredIndex, columns: Mapping[str, NDArray]):
        self.parts: list[StoredIndex] = [first]
        self.n = len(first.order)
        self._columns = {name: Grown(values) for name, values in columns.items()}
        self._gone = np.zeros(0, np.int64)  # places, sorted

    @property
    def order(self) -> NDArray[np.integer]:
        return self.column("order")

    @property
    def exact(self) -> bool:
        return all(part.exact for part in self.parts)

    def column(self, name: str) -> NDArray:
        return self._columns[name].room[: self.n]

    @property
    def n_left(self) -> int:
        return self.n - len(self._gone)

    @property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(len(part.order) for part in self.parts)])

    # --- as every index -----------------------------------------------------------------------------------------------

    def query(self, X: Array, n_neighbors: int) -> Neighbors:
        return self._merged(n_neighbors, lambda part, bounds: part.nearer(X, n_neighbors, bounds), len(X))

    def exact_query(self, X: Array, n_neighbors: int) -> Neighbors:
        return self._merged(n_neighbors, lambda part, bounds: part._rows.nearer(X, n_neighbors, bounds), len(X))

    def _merged(self, n_neighbors: int, nearer: Callable[[StoredIndex, Array], NDArray], n_queries: int) -> Neighbors:
        found, bounds = None, everywhere(n_queries)
        for part, start in zip(self.parts, self._starts, strict=False):
            keys = smallest(nearer(part, bounds), n_neighbors)
            if start:
                keys[keys != NONE] += np.uint64(start)  # the lower half is the row's number
            if found is not None:
                changed = np.flatnonzero(keys[:, 0] != NONE)
                found[changed] = smallest(np.concatenate([found[changed], keys[changed]], axis=1), n_neighbors)
            else:
                found = keys
            bounds = np.where(found[:, -1] == NONE, np.float32(np.inf), squared_of(found[:, -1]))
        assert found is not None
        return decoded(found, n_neighbors)

    def points(self, indices: NDArray[np.integer]) -> NDArray[np.float32]:
        starts = self._starts
        if len(self.parts) == 1:
            return self.parts[0].points(indices)
        part_of = np.searchsorted(starts, indices, side="right") - 1
        out = np.empty((*indices.shape, self.parts[0]._rows.d), np.float32)
        for k, part in enumerate(self.parts):
            here = part_of == k
            out[here] = part.points(indices[here] - starts[k])
        return out

    # --- rows that come and go ----------------------------------------------------------------------------------------

    def with_rows(self, rows: NDArray[np.float32], columns: Mapping[str, NDArray], build: Build) -> Segments:
        """These rows too (b, d), with what belongs to them."""
        new = copy.copy(self)
        tail = self.parts[-1]
        joins_tail = len(self.parts) > 1 and isinstance(tail, Flat) and len(tail.order) + len(rows) <= _TAIL
        if joins_tail:
            rows = np.concatenate([tail.points(np.arange(len(tail.order))), rows])
        made = Flat().build(rows.copy(), 1, rows[:0]) if len(rows) <= _TAIL else build(_padded(rows))
        new.parts = [*(self.parts[:-1] if joins_tail else self.parts), made]
        new.n = self.n + len(columns["order"])
        new._columns = {name: self._columns[name].extended(self.n, np.asarray(columns[name])) for name in self._columns}
        if made.order[-1] != len(rows) - 1 or not isinstance(
            made, Flat
        ):  # the new rows are kept in an order of their own
            new._reorder(self.n - (len(tail.order) if joins_tail else 0), made.order)
        return new._settled(build)

    def without(self, places: NDArray[np.int64], build: Build) -> Segments:
        """All but the rows in these places."""
        new, starts = copy.copy(self), self._starts
        new._gone = np.union1d(self._gone, places)
        new.parts = list(self.parts)
        for k in np.unique(np.searchsorted(starts, places, side="right") - 1):
            inside = places[(places >= starts[k]) & (places < starts[k + 1])] - starts[k]
            part = copy.copy(self.parts[k])
            strips = part._rows.strips.copy()
            strips[inside // STRIP, 0, inside % STRIP] = _GONE
            part._rows = Rows(strips, part._rows.n)
            new.parts[k] = part
        for k in range(len(new.parts) - 1, -1, -1):
            if 2 * new._left_of(k) < len(new.parts[k].order):
                new._rebuild(k, k + 1, build)
        return new._settled(build)

    def consolidated(self, build: Build) -> tuple[StoredIndex, dict[str, NDArray]]:
        """One index of all rows that are left, and their columns."""
        new = copy.copy(self)
        new.parts = list(self.parts)
        if len(new.parts) > 1 or len(new._gone):
            new._rebuild(0, len(new.parts), build)
        return new.parts[0], {name: new.column(name) for name in new._columns}

    def _settled(self, build: Build) -> Segments:
        """Each segment is several times larger than the next, but for the tail."""
        while len(self.parts) > 1:
            sizes = [len(part.order) for part in self.parts]
            small = [k for k in range(1, len(sizes)) if sizes[k] > _TAIL and sizes[k - 1] < _GROWTH * sizes[k]]
            full = [k for k in range(1, len(sizes) - 1) if sizes[k] <= _TAIL]  # tails that others have come after
            if not small and not full:
                break
            k = (small or full)[-1]
            self._rebuild(k - 1, k + 1, build) if small else self._rebuild(k, k + 2, build)
        return self

    def _left_of(self, k: int) -> int:
        starts = self._starts
        return len(self.parts[k].order) - int(np.sum((self._gone >= starts[k]) & (self._gone < starts[k + 1])))

    def _rebuild(self, first: int, last: int, build: Build) -> None:
        """Parts first … last−1 become one, without rows that are gone."""
        starts = self._starts
        begin, end = int(starts[first]), int(starts[last])
        places = np.setdiff1d(np.arange(begin, end), self._gone, assume_unique=True)
        made = [build(_padded(self.points(places)))] if len(places) else []
        kept = places[made[0].order] if made else places
        after = np.arange(end, self.n)
        whole = np.concatenate([np.arange(begin), kept, after])
        columns = {name: Grown(self.column(name)[whole]) for name in self._columns}
        gone, lost = self._gone, (end - begin) - len(kept)
        self._gone = np.concatenate([gone[gone < begin], gone[gone >= end] - lost])
        self.parts = [*self.parts[:first], *made, *self.parts[last:]]
        self.n, self._columns = len(whole), columns

    def _reorder(self, begin: int, order: NDArray) -> None:
        whole = np.concatenate([np.arange(begin), begin + order.astype(np.int64)])
        self._columns = {name: Grown(self.column(name)[whole]) for name in self._columns}


def _padded(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """In an array that an index takes over without a copy."""
    room = Rows.allocate(*rows.shape)
    room[:] = rows
    return room


def built_by(make_index: Any, index: Any, n_neighbors: int, n_jobs: int | None) -> Build:
    """As `fit` builds an index of that name or kind."""

    def build(rows: NDArray[np.float32]) -> StoredIndex:
        n, d = rows.shape
        probes = rows[np.linspace(0, n - 1, min(n, 1000)).astype(np.int64)].copy()
        return make_index(index, n, d, n_neighbors).build(rows, min(n_neighbors, n), probes, n_jobs, 0)

    return build
