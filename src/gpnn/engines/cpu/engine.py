"""The engine of this machine's cores: an index, the compiled solver, and blocks of queries through threads."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Neighbors
from gpnn.engines import Whitening
from gpnn.engines.cpu.joint import CPUErrors
from gpnn.engines.cpu.learner import CPULearner
from gpnn.engines.cpu.neighbors import NeighborIndex, make_index, nearest_others, recall
from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.engines.cpu.neighbors.shards import Shards
from gpnn.engines.cpu.solver import solve_path, solve_targets
from gpnn.engines.local import LocalSolution, Noise
from gpnn.engines.parallel import for_each_block, n_threads

_ROWS = 65_536  # that a thread whitens at a time
_FEWER_ROWS = 1024  # where they are queries, and few
_MOST, _MOST_OF_SHARDS = 64, 512  # queries that a thread answers at a time; to ask a shard takes a while by itself


class CPU:
    """n_jobs: threads; None for every core. batch_size: queries that one works on at a time; None bounds their memory
    at about 16 MiB."""

    index: NeighborIndex
    y: Array
    noise: Noise | None
    searches_segments = searches_shards = True

    def __init__(self, n_jobs: int | None = None, batch_size: int | None = None):
        self.n_jobs, self.batch_size = n_jobs, batch_size

    @property
    def n_learners(self) -> int | None:
        return self.n_jobs

    def describe(self) -> str:
        threads = n_threads(self.n_jobs)
        return f"cpu, {threads} thread{'s' * (threads > 1)}"

    def whiten(
        self, whitening: Whitening, X: Array, hidden: NDArray | None = None, progress: Any = None
    ) -> NDArray[np.float32]:
        hidden = np.zeros(0, np.int64) if hidden is None else hidden
        rows = Rows.allocate(len(X) - len(hidden), X.shape[1])  # which an index can take over
        size = _ROWS if len(X) > _ROWS else _FEWER_ROWS

        def whiten(block: slice) -> None:
            kept, begin = X[block], block.start
            if len(hidden):
                first, last = np.searchsorted(hidden, (block.start, block.stop))
                kept, begin = np.delete(kept, hidden[first:last] - block.start, axis=0), block.start - first
            whitening.transform(kept, out=rows[begin : begin + len(kept)])

        for_each_block(whiten, len(X), size, self.n_jobs, progress)
        return rows

    def build(
        self,
        rows: NDArray[np.float32],
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
        built = spec.build(rows, n_neighbors, rows[probes], self.n_jobs, seed, progress)
        return self.hold(built, y[built.order], None if noise is None else noise[built.order])

    def hold(self, index: NeighborIndex, y: Array, noise: Noise | None = None) -> Self:
        engine = copy.copy(self)
        engine.index, engine.y, engine.noise = index, y, noise
        return engine

    def recall(self, rows: NDArray, n_neighbors: int) -> float:
        if self.index.exact:
            return 1.0
        shares = np.empty(len(rows))

        def compare(part: slice) -> None:
            found = self.index.query(rows[part], n_neighbors)
            shares[part] = recall(found, self.index.exact_query(rows[part], n_neighbors))

        for_each_block(compare, len(rows), 16, self.n_jobs)
        return float(shares.mean())

    def neighbors(self, X_star: NDArray[np.float32], n_neighbors: int, progress: Any = None) -> Neighbors:
        indices = np.empty((len(X_star), n_neighbors), np.int64)
        distances = np.empty((len(X_star), n_neighbors), np.float32)

        def search(part: slice) -> None:
            found = self.index.query(X_star[part], n_neighbors)
            indices[part], distances[part] = found.indices, found.distances

        for_each_block(search, len(X_star), self._queries_per_block(X_star, n_neighbors), self.n_jobs, progress)
        return Neighbors(indices, distances)

    def path(
        self,
        X_star: NDArray[np.float32],
        sizes: NDArray[np.integer],
        kernel: Kernel,
        params: Hyperparameters,
        own: NDArray | None = None,
        n_innovations: int | None = None,
        progress: Any = None,
    ) -> LocalSolution:
        if (turns := self._turns(X_star)) is not None:
            alone = None if own is None else own[turns]
            found = self._path(X_star[turns], sizes, kernel, params, alone, n_innovations, progress)
            back = np.argsort(turns)
            return LocalSolution(*(part[back] for part in found))
        return self._path(X_star, sizes, kernel, params, own, n_innovations, progress)

    def _turns(self, X_star: NDArray[np.float32]) -> NDArray[np.int64] | None:
        """The order in which queries are answered, where it matters: those of a shard together."""
        return np.argsort(self.index.homes(X_star), kind="stable") if isinstance(self.index, Shards) else None

    def _path(self, X_star, sizes, kernel, params, own, n_innovations, progress) -> LocalSolution:
        m = int(sizes[-1])
        kept = m if n_innovations is None else min(m, n_innovations)
        mean, variance = np.empty((2, len(X_star), len(sizes)))
        jitter, innovations = np.empty(len(X_star)), np.empty((len(X_star), kept))

        def predict(part: slice) -> None:
            if own is None:
                neighbors = self.index.query(X_star[part], m).indices
            else:
                neighbors = nearest_others(self.index, X_star[part], own[part], m)
            solution = self._solve(X_star[part], neighbors, kernel, params, sizes)
            mean[part], variance[part], jitter[part] = solution[:3]
            innovations[part] = solution.innovations[:, :kept]

        for_each_block(predict, len(X_star), self._queries_per_block(X_star, m), self.n_jobs, progress)
        return LocalSolution(mean, variance, jitter, innovations)

    def targets(
        self,
        X_star: NDArray[np.float32],
        sizes: NDArray[np.integer],
        kernel: Kernel,
        params: Hyperparameters,
        Y: Array,
        n_innovations: int,
        progress: Any = None,
    ) -> LocalSolution:
        """Laws of several targets Y (n, k), in the order of the index, from one search and one factor: means (q, k),
        innovations (q, k, n_innovations), and variances (q, s) from the nearest sizes[0] < … < sizes[s − 1] rows."""
        n_neighbors = int(sizes[-1])
        kept = min(n_neighbors, n_innovations)
        mean, variance = np.empty((len(X_star), Y.shape[1])), np.empty((len(X_star), len(sizes)))
        jitter, innovations = np.empty(len(X_star)), np.empty((len(X_star), Y.shape[1], kept))

        def predict(part: slice) -> None:
            found = self.index.query(X_star[part], n_neighbors).indices
            noise = None if self.noise is None else self.noise[found].variance(params)
            points = self.index.points(found)
            solution = solve_targets(X_star[part], points, found, Y, kernel, params, sizes, kept, noise)
            mean[part], variance[part], jitter[part], innovations[part] = solution

        for_each_block(predict, len(X_star), self._queries_per_block(X_star, n_neighbors), self.n_jobs, progress)
        return LocalSolution(mean, variance, jitter, innovations)

    def _solve(self, X_star, neighbors: NDArray, kernel: Kernel, params: Hyperparameters, sizes) -> LocalSolution:
        noise = None if self.noise is None else self.noise[neighbors].variance(params)
        return solve_path(X_star, self.index.points(neighbors), self.y[neighbors], kernel, params, sizes, noise)

    def errors(
        self,
        X_star: NDArray[np.float32],
        n_neighbors: int,
        kernel: Kernel,
        params: Hyperparameters,
        progress: Any = None,
    ) -> CPUErrors:
        return CPUErrors(self.index, X_star, n_neighbors, kernel, params, self.n_jobs, progress, self.noise)

    def learner(self, rows: NDArray[np.float32], y: Array, seed: int, noise: Noise | None = None) -> CPULearner:
        return CPULearner(rows, y, seed, self.n_jobs, noise)

    def _queries_per_block(self, X_star, n_neighbors: int) -> int:
        if self.batch_size is not None:
            return self.batch_size
        most = _MOST_OF_SHARDS if isinstance(self.index, Shards) else _MOST
        fewest = -(-len(X_star) // (4 * n_threads(self.n_jobs)))  # so that no thread is without work
        return min(max(_MOST, min(most, fewest)), max(1, 2**22 // (n_neighbors * X_star.shape[1])))
