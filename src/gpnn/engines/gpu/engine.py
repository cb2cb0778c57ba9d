"""The engine of a GPU: rows and index on the device, laws of a block of queries at a time."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Neighbors
from gpnn.engines.cpu import CPU
from gpnn.engines.cpu.joint import CPUErrors
from gpnn.engines.cpu.neighbors import IVF, NeighborIndex, make_index
from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.engines.cpu.neighbors.shards import Shards
from gpnn.engines.gpu.cells import Cells, in_table_order, without_own
from gpnn.engines.gpu.device import check_room, describe, find_device, free_bytes, in_blocks, upload
from gpnn.engines.gpu.inverted import build_inverted
from gpnn.engines.gpu.learner import GPULearner
from gpnn.engines.gpu.shards import HeldShards
from gpnn.engines.gpu.solver import solve_path
from gpnn.engines.gpu.whitening import DeviceWhitening
from gpnn.engines.local import LocalSolution, Noise
from gpnn.engines.parallel import shown

_ROWS = 2**20  # that are whitened at a time
_MOST_QUERIES = 2**15  # that are answered at a time
_SHARE = 0.25  # of the free memory that they may take


@dataclass(frozen=True)
class _Held:
    """What the device has of an index."""

    cells: Cells
    order: torch.Tensor
    y: torch.Tensor
    noise: torch.Tensor | None
    """(2, n): share and known."""
    of: tuple[Array, Noise | None]
    """The targets and the noise that these are copies of."""

    @property
    def n(self) -> int:
        return self.cells.n

    @property
    def n_boxes(self) -> int:
        return len(self.cells.starts)

    def nearest(
        self, X: torch.Tensor, n_neighbors: int, exhaustive: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Places (q, m), numbers in `build` and squared distances of the nearest rows, nearest first."""
        found, squared = (self.cells.exhaustive() if exhaustive else self.cells).nearest(X, n_neighbors)
        return *in_table_order(found, self.order[found], squared), squared

    def system(self, places: torch.Tensor) -> tuple[Cells, torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """What `solve_path` takes of the rows at these places."""
        return self.cells, self.y, self.noise, places


_on_device: WeakKeyDictionary[NeighborIndex, dict[str, _Held | HeldShards]] = WeakKeyDictionary()
"""Indexes that were sent there already; they leave the device with their originals."""


class GPU:
    """device: "cuda", or "cuda:1" for the second one. n_jobs: threads of what is left to this machine's cores, such as
    building a kd-tree. batch_size: queries that are answered at a time; None for as many as fit well."""

    index: NeighborIndex
    y: Array
    noise: Noise | None
    searches_shards = True
    _held: _Held | HeldShards

    def __init__(self, device: str = "cuda", n_jobs: int | None = None, batch_size: int | None = None):
        self.device, self.n_jobs, self.batch_size = device, n_jobs, batch_size

    @property
    def n_learners(self) -> int | None:
        return 1  # they would wait for each other

    def describe(self) -> str:
        return f"gpu, {describe(find_device(self.device))}"

    def whiten(self, whitening: Any, X: Array, hidden: NDArray | None = None, progress: Any = None) -> torch.Tensor:
        device = find_device(self.device)
        keep = np.ones(len(X), dtype=bool)
        keep[np.zeros(0, np.int64) if hidden is None else hidden] = False
        n, d = int(keep.sum()), X.shape[1]
        check_room(4 * n * d, device, f"{n} rows of {d} columns")
        rows = torch.empty(n, d, dtype=torch.float32, device=device)
        on_device = DeviceWhitening(whitening, device)
        done = np.concatenate([[0], np.cumsum(keep)])

        def whiten(part: slice) -> None:
            kept = X[part] if n == len(X) else X[part][keep[part]]
            rows[done[part.start] : done[part.stop]] = on_device(upload(kept, device))

        with shown(progress, len(X)) as bar:
            in_blocks(whiten, len(X), max(1, _ROWS * 16 // max(16, d)), bar)
        return rows

    def build(
        self,
        rows: torch.Tensor,
        y: Array,
        index: str | NeighborIndex,
        n_neighbors: int,
        probes: NDArray,
        seed: int,
        progress: Any = None,
        noise: Noise | None = None,
    ) -> Self:
        n, d = rows.shape
        spec = make_index(index, n, d, n_neighbors)
        probe_rows = rows[torch.from_numpy(probes).to(rows.device)]
        if isinstance(spec, IVF):
            inverted, cells = build_inverted(spec, rows, n_neighbors, probe_rows, seed)
            return self._hold(inverted, y[inverted.order], _in_order(noise, inverted), cells)
        host = Rows.allocate(*rows.shape)
        torch.from_numpy(host).copy_(rows)
        built = spec.build(host, n_neighbors, probe_rows.cpu().numpy(), self.n_jobs, seed, progress)
        return self.hold(built, y[built.order], _in_order(noise, built))

    def hold(self, index: NeighborIndex, y: Array, noise: Noise | None = None) -> Self:
        return self._hold(index, y, noise, None)

    def _hold(self, index: NeighborIndex, y: Array, noise: Noise | None, cells: Cells | None) -> Self:
        device = find_device(self.device)
        held = _on_device.setdefault(index, {}).get(str(device))
        if held is None or held.of[0] is not y or held.of[1] is not noise:
            if isinstance(index, Shards):
                held = HeldShards(index, y, device)
            else:
                cells = cells or (held.cells if isinstance(held, _Held) else Cells.of(index, device))
                targets = upload(np.asarray(y, float), device)
                of_noise = None if noise is None else upload(np.stack([noise.share, noise.known]).astype(float), device)
                held = _Held(cells, upload(index.order, device).long(), targets, of_noise, (y, noise))
            _on_device[index][str(device)] = held
        engine = copy.copy(self)
        engine.index, engine.y, engine.noise, engine._held = index, y, noise, held
        return engine

    def recall(self, rows: torch.Tensor, n_neighbors: int) -> float:
        if self.index.exact:
            return 1.0
        found, true = (self._held.nearest(rows, n_neighbors, exhaustive)[2] for exhaustive in (False, True))
        return float((found <= true[:, -1:] * (1 + 2e-6)).double().mean())  # squared distances

    def neighbors(self, X_star: Any, n_neighbors: int, progress: Any = None) -> Neighbors:
        X_star = self._queries(X_star)
        indices = np.empty((len(X_star), n_neighbors), np.int64)
        distances = np.empty((len(X_star), n_neighbors), np.float32)

        def search(part: slice) -> None:
            found, _, squared = self._held.nearest(X_star[part], n_neighbors)
            indices[part], distances[part] = found.cpu().numpy(), squared.sqrt().cpu().numpy()

        with shown(progress, len(X_star)) as bar:
            in_blocks(search, len(X_star), self._queries_per_block(n_neighbors), bar)
        return Neighbors(indices, distances)

    def path(
        self,
        X_star: Any,
        sizes: NDArray[np.integer],
        kernel: Kernel,
        params: Hyperparameters,
        own: NDArray | None = None,
        n_innovations: int | None = None,
        progress: Any = None,
    ) -> LocalSolution:
        if kernel.broad is not None:  # the device has no code for sums of kernels
            rows = X_star.cpu().numpy() if isinstance(X_star, torch.Tensor) else np.asarray(X_star, np.float32)
            own_cores = CPU(self.n_jobs, self.batch_size).hold(self.index, self.y, self.noise)
            return own_cores.path(rows, sizes, kernel, params, own, n_innovations, progress)
        X_star = self._queries(X_star)
        if not isinstance(self._held, HeldShards):
            return self._path(X_star, sizes, kernel, params, own, n_innovations, progress)
        turns = self._held.turns(X_star)
        order = turns.cpu().numpy()
        alone = None if own is None else own[order]
        found = self._path(X_star[turns], sizes, kernel, params, alone, n_innovations, progress)
        return LocalSolution(*(part[np.argsort(order)] for part in found))

    def _path(self, X_star: torch.Tensor, sizes, kernel, params, own, n_innovations, progress) -> LocalSolution:
        m, held = int(sizes[-1]), self._held
        kept = m if n_innovations is None else min(m, n_innovations)
        mean, variance = np.empty((2, len(X_star), len(sizes)))
        jitter, innovations = np.empty(len(X_star)), np.empty((len(X_star), kept), np.float32)

        def predict(part: slice) -> None:
            if own is None:
                neighbors, *_ = held.nearest(X_star[part], m)
            else:
                near, numbers, _ = held.nearest(X_star[part], min(m + 1, held.n))
                neighbors = without_own(near, numbers, upload(own[part], near.device))
            found = solve_path(*held.system(neighbors), X_star[part], kernel, params, sizes, kept)
            mean[part], variance[part], jitter[part], innovations[part] = (values.cpu().numpy() for values in found)

        with shown(progress, len(X_star)) as bar:
            in_blocks(predict, len(X_star), self._queries_per_block(m), bar)
        return LocalSolution(mean, variance, jitter, innovations)

    def errors(
        self, X_star: Any, n_neighbors: int, kernel: Kernel, params: Hyperparameters, progress: Any = None
    ) -> CPUErrors:
        """By this machine's cores: there are no kernels of the device's for it yet."""
        rows = X_star.cpu().numpy() if isinstance(X_star, torch.Tensor) else X_star
        return CPUErrors(self.index, rows, n_neighbors, kernel, params, self.n_jobs, progress, self.noise)

    def learner(self, rows: torch.Tensor, y: Array, seed: int, noise: Noise | None = None) -> GPULearner:
        return GPULearner(rows, y, noise)

    def _queries(self, X_star: Any) -> torch.Tensor:
        if isinstance(X_star, torch.Tensor):
            return X_star
        return upload(np.asarray(X_star, np.float32), find_device(self.device))

    def _queries_per_block(self, n_neighbors: int) -> int:
        if self.batch_size is not None:
            return self.batch_size
        each = 200 * n_neighbors + 16 * self._held.n_boxes
        return int(np.clip(_SHARE * free_bytes(find_device(self.device)) / each, 1, _MOST_QUERIES))

    def __getstate__(self) -> dict:
        """Settings alone: what is on a device stays there."""
        return {name: getattr(self, name) for name in ("device", "n_jobs", "batch_size")}


def _in_order(noise: Noise | None, index: NeighborIndex) -> Noise | None:
    return None if noise is None else noise[index.order]
