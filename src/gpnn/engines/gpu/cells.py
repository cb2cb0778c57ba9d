"""An index on the device: rows in the strips in which the CPU keeps them, in cells, and the search among those."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import triton

from gpnn.common.errors import InvalidInputError
from gpnn.engines.cpu.neighbors import IVF, Flat, KDTree, NeighborIndex
from gpnn.engines.gpu.device import check_room, upload
from gpnn.engines.gpu.kernels import search

_CHUNK = 1024  # rows of a cell where cells are merely pieces
_BOX_ROWS, _MOST_BOXES = 192, 8192  # the fewest rows in a box, and how many boxes there may be at most
_FIRST_BOXES = 96  # that a query is given before it is asked whether it needs more


@dataclass(frozen=True)
class Cells:
    """Rows 0 … n−1 in strips (s, d, 16), cut into cells at `starts`."""

    strips: torch.Tensor
    n: int
    starts: torch.Tensor
    low: torch.Tensor | None = None
    """(d, cells): the corner of each cell's box, or its centre; None: every cell is looked into."""
    high: torch.Tensor | None = None
    slack: float = 1.0
    n_probed: int | None = None
    """Of an inverted file: how many of the nearest cells are looked into. None: as many as may hold a nearer row."""

    @classmethod
    def of(cls, index: NeighborIndex, device: torch.device) -> Cells:
        """A copy of an index on the device."""
        if not isinstance(index, KDTree | Flat | IVF):
            raise InvalidInputError(
                f"engine='gpu' searches gpnn's own indexes, not a {type(index).__name__}. Use index='auto', or "
                "engine='cpu' with an index of your own."
            )
        rows = index._rows
        check_room(rows.strips.nbytes, device, f"{rows.n} rows of {rows.d} columns")
        strips = upload(rows.strips, device)
        if isinstance(index, KDTree):
            starts, *sides = index.subtrees(_BOX_ROWS, _MOST_BOXES)
            low, high = (upload(side.T, device) for side in sides)
            return cls(strips, rows.n, upload(starts, device), low, high, slack=index.slack)
        if isinstance(index, IVF) and not index.exact:
            centres = upload(index._centres.take(np.arange(index._centres.n)).T, device)
            return cls(strips, rows.n, upload(index._starts, device), centres, centres, n_probed=index.n_probed)
        return cls.plain(strips, rows.n)

    @classmethod
    def plain(cls, strips: torch.Tensor, n: int) -> Cells:
        """All rows are compared with every query."""
        starts = torch.arange(0, n + _CHUNK, _CHUNK, device=strips.device).clamp(max=n)
        return cls(strips, n, starts)

    @property
    def d(self) -> int:
        return self.strips.shape[1]

    def exhaustive(self) -> Cells:
        return Cells.plain(self.strips, self.n)

    def nearest(
        self, X: torch.Tensor, n_neighbors: int, weights: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Numbers (q, m) and squared distances of the rows nearest to X (q, d, float32), nearest first.

        weights (d,): of the columns' squared differences, where all cells are looked into.
        """
        if n_neighbors > self.n:
            raise InvalidInputError(f"The index holds, or looked at, fewer than {n_neighbors} rows. Ask for fewer.")
        if weights is None:
            weights = torch.ones(self.d, dtype=torch.float32, device=X.device)
        n_cells = len(self.starts) - 1
        if self.low is None:
            return _decoded(self._scan(X, n_neighbors, weights, None, None, n_cells))
        distances = self.distances(X)
        if self.n_probed is not None:
            near, cells = torch.topk(distances, self.n_probed, dim=1, largest=False)
            return _decoded(self._scan(X, n_neighbors, weights, cells, torch.full_like(near, -1.0), self.n_probed))
        if self.slack > 1:
            distances *= self.slack
        keys = torch.empty(len(X), n_neighbors, dtype=torch.int64, device=X.device)
        todo, listed = torch.arange(len(X), device=X.device), min(_FIRST_BOXES, n_cells)
        while len(todo):  # until no box that was not looked into is nearer than the farthest row found
            near, cells = torch.topk(distances[todo], listed, dim=1, largest=False)
            found = self._scan(X[todo], n_neighbors, weights, cells, near, listed)
            keys[todo] = found
            if listed == n_cells:
                break
            todo = todo[near[:, -1] < _squared(found[:, -1])]
            listed = min(4 * listed, n_cells)
        return _decoded(keys)

    def distances(self, X: torch.Tensor) -> torch.Tensor:
        """Squared, of the queries from the cells' boxes or centres (q, cells)."""
        n_cells = len(self.starts) - 1
        out = torch.empty(len(X), n_cells, dtype=torch.float32, device=X.device)
        grid = (triton.cdiv(len(X), 32), triton.cdiv(n_cells, 128))
        search.box_distances[grid](X, self.low, self.high, out, len(X), n_cells, self.d, QUERIES=32, CELLS=128)
        return out

    def _scan(self, X, n_neighbors, weights, cells, distances, n_cells) -> torch.Tensor:
        """Sorted keys (q, m)."""
        tile = 1024 if cells is None else 256
        room = triton.next_power_of_2(2 * n_neighbors + 2 * tile)
        keys = torch.empty(len(X), room, dtype=torch.int64, device=X.device)
        counts = torch.empty(len(X), dtype=torch.int32, device=X.device)
        search.scan[(len(X),)](
            self.strips, self.starts, cells, distances, X, weights, keys, counts, n_cells, n_neighbors, self.d,
            LISTED=cells is not None, TILE=tile, ROOM=room,
        )  # fmt: skip
        if bool((counts < n_neighbors).any()):
            if cells is not None and n_cells < len(self.starts) - 1:  # cells with few rows: look into all
                return self._scan(X, n_neighbors, weights, None, None, len(self.starts) - 1)
            raise InvalidInputError(f"The index holds, or looked at, fewer than {n_neighbors} rows. Ask for fewer.")
        return keys[:, :n_neighbors].sort(dim=1).values


def _squared(keys: torch.Tensor) -> torch.Tensor:
    """The squared distances of keys."""
    return (keys >> 32).to(torch.int32).view(torch.float32)


def _decoded(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return keys & 0xFFFFFFFF, _squared(keys)


def in_table_order(
    found: torch.Tensor, numbers: torch.Tensor, squared: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Places (q, m) and numbers of rows, nearest first, with those that are equally far by their numbers, as the CPU
    has them. Of rows as far as the last one, others may have been found there."""
    some = torch.nonzero((squared[:, 1:] == squared[:, :-1]).any(dim=1))[:, 0]
    if len(some):
        turns = ((squared[some].view(torch.int32).long() << 32) | numbers[some]).argsort(dim=1)
        found[some], numbers[some] = found[some].gather(1, turns), numbers[some].gather(1, turns)
    return found, numbers


def without_own(found: torch.Tensor, numbers: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """`found` (q, m + 1) without the entry whose number is own[i], or without the last where there is none: (q, m)."""
    drop = numbers == own[:, None]
    drop[:, -1] |= ~drop.any(dim=1)
    return found[~drop].view(len(found), -1)
