"""The loops of learning, compiled: search in a metric that changes, and the gradient of the predictive likelihood."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from threading import local

import numpy as np
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Probes
from gpnn.engines.compiled.abreast import scratch
from gpnn.engines.compiled.covariance import KERNEL_NUMBERS, as_compiled
from gpnn.engines.compiled.predictive import predictive_gradient, predictive_laws, predictive_pulls
from gpnn.engines.cpu.neighbors import IVF, Flat, KDTree, automatic_index, nearest_others
from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.engines.local import Noise
from gpnn.engines.parallel import for_each_block

_MOST_NEIGHBORS = 63  # that will be asked for: indexes may tune themselves for that
_SEARCH, _PREDICTED = 128, 500  # queries that a thread works on at a time
_TOGETHER, _WIDE = 32, 16  # of those of a gradient, from so many columns on: with fewer, threads would gain nothing
_STRETCH = {KDTree: 0.2, Flat: np.inf, IVF: 0.7}
"""Of columns against each other (the sd of its logarithms), at which an index is built anew: a tree in stretched boxes
takes longer, an inverted file then finds 0.98 of the neighbours."""
_OF_THIS_THREAD = local()


class CPULearner:
    """The index is built anew only when columns were stretched much, and stretched with them otherwise."""

    def __init__(
        self, rows: NDArray[np.float32], y: Array, seed: int, n_jobs: int | None = None, noise: Noise | None = None
    ):
        self.rows, self.y, self.seed, self.n_jobs, self.noise = rows, y, seed, n_jobs, noise
        self._lengthscale: Array = np.ones(rows.shape[1])  # that of the index
        self._index: KDTree | Flat | IVF | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    def take(self, numbers: NDArray[np.integer]) -> NDArray[np.float32]:
        return self.rows[numbers]

    def prepare(self, probes: Probes) -> None:
        self._in_metric(self._lengthscale, probes)

    def branch(self, n_jobs: int | None) -> CPULearner:
        other = copy.copy(self)
        other.n_jobs = n_jobs
        return other

    def neighborhoods(self, probes: Probes, lengthscale: Array | float, n_neighbors: int) -> CPUNeighborhoods:
        if isinstance(lengthscale, np.ndarray) and lengthscale.ndim == 2:
            mapped = self.after(lengthscale).neighborhoods(probes.after(lengthscale), 1.0, n_neighbors)
            return self.among(probes, mapped.neighbors)
        n, d = self.rows.shape
        m = min(n_neighbors, n - 1)
        index = self._in_metric(np.broadcast_to(np.asarray(lengthscale, dtype=float), d), probes)
        X = (probes.X / self._lengthscale).astype(np.float32)
        found = np.empty((len(probes), m), np.int64)

        def one(part: slice) -> None:
            found[part] = index.order[nearest_others(index, X[part], probes.own[part], m)]

        for_each_block(one, len(probes), _SEARCH, self.n_jobs)
        return self.among(probes, found)

    def after(self, x_map: Array) -> CPULearner:
        n, d = self.rows.shape
        rows = Rows.allocate(n, d)
        np.matmul(self.rows, x_map.astype(np.float32), out=rows)
        return CPULearner(rows, self.y, self.seed, self.n_jobs, self.noise)

    def among(self, probes: Probes, neighbors: NDArray[np.int64]) -> CPUNeighborhoods:
        return CPUNeighborhoods(self.rows, self.y, probes, neighbors, self.n_jobs, self.noise)

    def _in_metric(self, lengthscale: Array, probes: Probes) -> KDTree | Flat | IVF:
        change = self._lengthscale / lengthscale
        if self._index is None or _stretch(self._lengthscale, lengthscale) > _STRETCH[type(self._index)]:
            n, d = self.rows.shape
            scaled = Rows.allocate(n, d)
            np.divide(self.rows, lengthscale, out=scaled, casting="same_kind")
            m = min(_MOST_NEIGHBORS + 1, n)
            like_queries = (probes.X[:500] / lengthscale).astype(np.float32)
            self._index = automatic_index(n, d, m).build(scaled, m, like_queries, self.n_jobs, self.seed)
            self._lengthscale = lengthscale
        elif np.ptp(np.log(change)) > 1e-6:  # a factor common to all columns changes no neighbour
            self._index = self._index.stretched(change.astype(np.float32))
            self._lengthscale = lengthscale
        return self._index


def _stretch(before: Array, after: Array) -> float:
    """Of columns against each other, each counted by its part in squared distances, before or after: a column that
    matters in neither may be stretched at will."""
    parts = sum(weights / weights.sum() for weights in (before**-2.0, after**-2.0))
    change = np.log(before / after)
    return float(np.sqrt(np.average((change - np.average(change, weights=parts)) ** 2, weights=parts)))


def _scratch(*size: int):
    """Made once for a thread that goes on with probes of the same size."""
    kept = vars(_OF_THIS_THREAD)
    if kept.get("size") != size:
        kept.update(size=size, arrays=scratch(*size))
    return kept["arrays"]


@dataclass(frozen=True)
class CPUNeighborhoods:
    rows: NDArray[np.float32]
    y: Array
    probes: Probes
    neighbors: NDArray[np.int64]
    """(q, m): numbers of each probe's nearest other rows."""
    n_jobs: int | None
    noise: Noise | None = None

    def _noise(self, chosen) -> tuple[Array | None, Array | None]:
        """Of the chosen probes, and of all rows."""
        if self.noise is None or self.probes.noise is None:
            return None, None
        return self.probes.noise[chosen].columns, self.noise.columns

    def gradient(
        self, chosen: NDArray, kernel: Kernel, theta: Array, share: float, typical: float
    ) -> tuple[Array, int, float]:
        d, m = self.rows.shape[1], self.neighbors.shape[1]
        alone = kernel.broad is None
        number = KERNEL_NUMBERS[kernel.name] if alone else as_compiled(kernel, Hyperparameters.from_vector(theta, d), d)
        size = _TOGETHER if d >= _WIDE else len(chosen)
        gradients = np.empty((-(-len(chosen) // size), len(theta)))
        counts, innovations = np.empty((2, len(gradients)))

        def one(part: slice) -> None:
            some, at = chosen[part], part.start // size
            counts[at], innovations[at] = predictive_gradient(
                number, self.probes.X[some], self.probes.y[some], self.rows, self.y, self.neighbors[some],
                theta[:d].copy(), theta[d], theta[d + 1], *_scratch(m + 1, d, 1 if alone else 3),
                gradients[at], share, typical, *self._noise(some),
            )  # fmt: skip
            innovations[at] *= len(some)

        for_each_block(one, len(chosen), size, self.n_jobs)
        return gradients.sum(axis=0), int(counts.sum()), float(innovations.sum() / len(chosen))

    def map_gradient(
        self, chosen: NDArray, kernel: Kernel, x_map: Array, variances: Array, share: float, typical: float
    ) -> tuple[Array, Array, int, float]:
        neighbors, X_star = self.neighbors[chosen], self.probes.X[chosen]
        (q, m), d = neighbors.shape, x_map.shape[1]
        rows, T = np.zeros((q, m + 1, len(x_map))), np.empty((q, m + 1))
        rows[:, :m] = self.rows[neighbors] - X_star[:, None]  # each query is where it was put: at 0
        T[:, :m], T[:, m] = self.y[neighbors], self.probes.y[chosen]
        noise_star, noise = self._noise(chosen)
        if noise is not None and noise_star is not None:
            noise = np.concatenate([noise[neighbors], noise_star[:, None]], axis=1)
        pulls, gradient = np.empty((q, m + 1, d)), np.empty(d + 2)
        count, innovation = predictive_pulls(
            KERNEL_NUMBERS[kernel.name], rows @ x_map, T, *variances, *_scratch(m + 1, d, 1), gradient, pulls,
            share, typical, noise,
        )  # fmt: skip
        by_map = rows.reshape(-1, len(x_map)).T @ pulls.reshape(-1, d)
        return by_map, gradient[d:], count, innovation

    def predict(self, kernel: Kernel, params: Hyperparameters) -> tuple[Prediction, Array]:
        (q, m), d = self.neighbors.shape, self.rows.shape[1]
        outcomes, innovations = np.tile([0.0, np.inf], (q, 1)), np.ones((q, m))
        theta, number = params.as_vector(d), as_compiled(kernel, params, d)

        def one(part: slice) -> None:
            A, _, *work = _scratch(m + 1, d, 1)
            predictive_laws(
                number, self.probes.X[part], self.probes.y[part], self.rows, self.y, self.neighbors[part],
                theta[:d].copy(), theta[d], theta[d + 1], A, *work, outcomes[part], innovations[part],
                *self._noise(part),
            )  # fmt: skip

        for_each_block(one, q, _PREDICTED, self.n_jobs)
        return Prediction(self.probes.y - outcomes[:, 0], outcomes[:, 1], known=self.probes.known), innovations
