"""The loops of learning, compiled: search in a metric that changes, and the gradient of the predictive likelihood."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from threading import local

import numpy as np
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Probes
from gpnn.engines.compiled.abreast import scratch
from gpnn.engines.compiled.covariance import KERNEL_NUMBERS, as_compiled
from gpnn.engines.compiled.descent import descend
from gpnn.engines.compiled.predictive import predictive_gradient, predictive_laws, predictive_pulls
from gpnn.engines.cpu.neighbors import IVF, Flat, KDTree, automatic_index, nearest_others
from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.engines.descent import LOWEST, SHARE, Adam, theta_of
from gpnn.engines.local import Noise
from gpnn.engines.parallel import for_each_block

_MOST_NEIGHBORS = 63  # that will be asked for: indexes may tune themselves for that
_SEARCH, _PREDICTED = 128, 500  # queries that a thread works on at a time
_STRETCH = {KDTree: 0.2, Flat: np.inf, IVF: 0.7}
"""Of columns against each other (the sd of its logarithms), at which an index is built anew: a tree in stretched boxes
takes longer, an inverted file then finds 0.98 of the neighbours."""
_NOISY = 1e-4  # of σ_f², from which σ_ξ² on float32 has digits to spare: a slope is off by 0.2 % at most
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


def _compiled(kernel: Kernel, theta: Array, d: int):
    return as_compiled(kernel, Hyperparameters.from_vector(theta, d), d)


def _slopes_of(kernel: Kernel) -> int:
    return 1 if kernel.broad is None else 3


def _dtype(fine: bool, kernel_variance: float, noise_variance: float):
    return np.float64 if fine or noise_variance < _NOISY * kernel_variance else np.float32


def _scratch(s: int, d: int, n_slopes: int = 1, dtype=np.float64):
    """Made once for a thread that goes on with probes of the same size."""
    kept, size = vars(_OF_THIS_THREAD), (s, d, n_slopes, dtype)
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

    @cached_property
    def _data(self) -> tuple:
        """Probes and rows, as compiled code takes them."""
        return np.ascontiguousarray(self.probes.X, float), self.probes.y, self.rows, self.y, self.neighbors

    def _noise(self, chosen=slice(None)) -> tuple[Array | None, Array | None]:
        """Of the chosen probes, and of all rows."""
        if self.noise is None or self.probes.noise is None:
            return None, None
        return self.probes.noise[chosen].columns, self.noise.columns

    @property
    def d(self) -> int:
        return self.rows.shape[1]

    def gradient(
        self, chosen: NDArray, kernel: Kernel, theta: Array, share: float, typical: float
    ) -> tuple[Array, int, float]:
        d, m = self.d, self.neighbors.shape[1]
        gradient = np.empty(len(theta))
        count, innovation = predictive_gradient(
            _compiled(kernel, theta, d), chosen, *self._data, theta[:d].copy(), theta[d], theta[d + 1],
            *_scratch(m + 1, d, _slopes_of(kernel)), gradient, share, typical, *self._noise(),
        )  # fmt: skip
        return gradient, count, innovation

    def descend(
        self, kernel: Kernel, batches: NDArray[np.int64], u: Array, adam: Adam, typical: float
    ) -> tuple[Array, float]:
        (d, m), path, done = (self.d, self.neighbors.shape[1]), np.empty((len(batches), len(u))), 0
        theta = theta_of(u, d)
        for dtype, least in ((np.float32, _NOISY), (np.float64, 0.0)):
            steps, typical = descend(
                _compiled(kernel, theta, d), batches[done:], *self._data, u, adam.first, adam.second, adam.rate,
                adam.number + 1, adam.n_steps, LOWEST, least, *_scratch(m + 1, d, _slopes_of(kernel), dtype=dtype),
                path[done:], SHARE, typical, *self._noise(),
            )  # fmt: skip
            adam.number, done = adam.number + steps, done + steps
            if done == len(batches):
                break
        return path, typical

    def map_gradient(
        self,
        chosen: NDArray,
        kernel: Kernel,
        x_map: Array,
        variances: Array,
        share: float,
        typical: float,
        fine: bool = True,
    ) -> tuple[Array, Array, int, float]:
        neighbors, X_star = self.neighbors[chosen], self.probes.X[chosen]
        (q, m), d, dtype = neighbors.shape, x_map.shape[1], _dtype(fine, *variances)
        rows, T = np.zeros((q, m + 1, len(x_map)), dtype), np.empty((q, m + 1))
        rows[:, :m] = self.rows[neighbors] - X_star[:, None]  # each query is where it was put: at 0
        T[:, :m], T[:, m] = self.y[neighbors], self.probes.y[chosen]
        noise_star, noise = self._noise(chosen)
        if noise is not None and noise_star is not None:
            noise = np.concatenate([noise[neighbors], noise_star[:, None]], axis=1)
        pulls, gradient = np.empty((q, m + 1, d), dtype), np.empty(d + 2)
        count, innovation = predictive_pulls(
            KERNEL_NUMBERS[kernel.name], rows @ x_map.astype(dtype), T, *variances, *_scratch(m + 1, d, dtype=dtype),
            gradient, pulls, share, typical, noise,
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
