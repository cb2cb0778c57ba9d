"""Shards on a device: of those on disk, as many as its memory has room for, the least recently asked leaving first."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gpnn.engines.cpu.neighbors.shards import Shards
from gpnn.engines.gpu.cells import Cells
from gpnn.engines.gpu.device import check_room, free_bytes, upload
from gpnn.engines.gpu.inverted import to_strips

_SHARE = 0.5  # of the memory that is free or theirs, for shards
_QUERIES = 2**15  # whose shards are looked for at a time
_NOBODY = 2**63 - 1  # the key of no row
_ROUNDING = 1e-5  # of distances from boxes


class _Shard:
    """Rows, numbers in the table and targets of one of them."""

    def __init__(self, index: Any, y, device: torch.device):
        self.cells = Cells.of(index, device)
        self.order, self.y = upload(index.order, device).long(), upload(np.asarray(y, float), device)


class HeldShards:
    """What the device has of an index in shards. Rows are numbered by their places in all of them, as there. It does
    not know the index itself: what is here leaves with that."""

    noise = None

    def __init__(self, index: Shards, y: Any, device: torch.device):
        self.device, self.n = device, index.n
        self.of = (y, None)
        self._parts, self._targets, self._check = index.parts, y.parts, index.check
        self._starts = torch.from_numpy(np.asarray(index.order.starts)).to(device)
        self._low, self._high = (upload(side, device) for side in (index.low, index.high))
        self._regions = None
        if index.regions is not None:
            ends = index.regions.low, index.regions.high, index.regions.depth
            self._regions = [upload(np.asarray(part, float), device) for part in ends]
        self._here: dict[int, _Shard] = {}  # the last one asked comes last

    @property
    def n_boxes(self) -> int:
        return max(len(shard.cells.starts) for shard in self._here.values()) if self._here else 2**13

    # --- which are here -----------------------------------------------------------------------------------------------

    def shard(self, k: int) -> _Shard:
        found = self._here.pop(k, None)
        if found is None:
            self._check(k)
            needed = _bytes(self._parts[k])
            free = free_bytes(self.device)
            while self._here and self._held + needed > _SHARE * (free + self._held):
                free += _bytes(self._parts[next(iter(self._here))])
                del self._here[next(iter(self._here))]
            check_room(needed, self.device, f"{len(self._parts[k].order)} rows of a shard")
            found = _Shard(self._parts[k], self._targets[k], self.device)
        self._here[k] = found
        return found

    @property
    def _held(self) -> int:
        return sum(_bytes(self._parts[k]) for k in self._here)

    # --- as one index -------------------------------------------------------------------------------------------------

    def turns(self, X: torch.Tensor) -> torch.Tensor:
        """The order in which to answer queries (q, d): those of a shard together."""
        homes = [self._gaps(part).argmin(dim=1) for part in X.split(_QUERIES)]
        return torch.cat([self._starts[:0], *homes]).argsort(stable=True)

    def nearest(
        self, X: torch.Tensor, n_neighbors: int, exhaustive: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Places (q, m), numbers in the table and squared distances of the nearest rows, nearest first."""
        gaps = self._gaps(X)
        home = gaps.argmin(dim=1)
        keys = torch.full((len(X), n_neighbors), _NOBODY, dtype=torch.int64, device=X.device)
        places = torch.zeros_like(keys)
        for k in home.unique().tolist():
            self._ask(k, X, torch.nonzero(home == k)[:, 0], keys, places, exhaustive)
        gaps[torch.arange(len(X), device=X.device), home] = torch.inf  # asked
        if self._regions is not None:
            gaps[_squared(keys[:, -1]) < self._reach(X, home).clamp(min=0) ** 2] = torch.inf
        for k in range(len(self._parts)):
            others = torch.nonzero(gaps[:, k] < _squared(keys[:, -1]))[:, 0]
            if len(others):
                self._ask(k, X, others, keys, places, exhaustive)
        return places, keys & 0xFFFFFFFF, _squared(keys)

    def system(self, places: torch.Tensor) -> tuple[Cells, torch.Tensor, None, torch.Tensor]:
        """The rows at these places (q, m) and their targets, by themselves, and where they are there (q, m)."""
        used, there = places.unique(return_inverse=True)
        part_of = torch.searchsorted(self._starts, used, right=True) - 1
        rows = torch.empty(len(used), self._low.shape[1], dtype=torch.float32, device=places.device)
        y = torch.empty(len(used), dtype=torch.float64, device=places.device)
        for k in part_of.unique().tolist():
            here, shard = torch.nonzero(part_of == k)[:, 0], self.shard(k)
            place = used[here] - self._starts[k]
            rows[here], y[here] = shard.cells.strips[place // 16, :, place % 16], shard.y[place]
        return Cells.plain(to_strips(rows), len(rows)), y, None, there

    def _ask(self, k: int, X: torch.Tensor, some: torch.Tensor, keys, places, exhaustive: bool) -> None:
        """Nearer rows of shard k, where it has any, among the keys (distance above number) of some queries."""
        shard, m = self.shard(k), keys.shape[1]
        cells = shard.cells.exhaustive() if exhaustive else shard.cells
        found, squared = cells.nearest(X[some], min(m, cells.n))
        new = (squared.view(torch.int32).long() << 32) | shard.order[found]
        both, turns = torch.cat([keys[some], new], dim=1).sort(dim=1)
        where = torch.cat([places[some], found + self._starts[k]], dim=1).gather(1, turns)
        both[:, 1:][both[:, 1:] == both[:, :-1]] = _NOBODY  # a row that both shards have
        both, turns = both.sort(dim=1)
        keys[some], places[some] = both[:, :m], where.gather(1, turns)[:, :m]

    def _gaps(self, X: torch.Tensor) -> torch.Tensor:
        """Squared distances (q, k) from boxes, as `Shards._gaps`."""
        gaps = torch.zeros(len(X), len(self._low), dtype=torch.float64, device=X.device)
        for x, low, high in zip(X.T.double(), self._low.T, self._high.T, strict=True):
            gaps += torch.maximum(low - x[:, None], x[:, None] - high).clamp(min=0) ** 2
        return gaps * (1 - _ROUNDING)

    def _reach(self, X: torch.Tensor, home: torch.Tensor) -> torch.Tensor:
        """As `Regions.reach`."""
        assert self._regions is not None
        low, high, depth = (part[home] for part in self._regions)
        inside = torch.minimum(X - low, high - X)
        outside = (inside.clamp(max=0) ** 2).sum(dim=1).sqrt()
        return (depth + torch.where(outside > 0, -outside, inside.amin(dim=1))) * (1 - _ROUNDING)


def _squared(keys: torch.Tensor) -> torch.Tensor:
    """Infinite where there is no row."""
    squared = (keys >> 32).to(torch.int32).view(torch.float32)
    return torch.where(keys == _NOBODY, torch.inf, squared)


def _bytes(index: Any) -> int:
    return index._rows.strips.nbytes + 16 * len(index.order)
