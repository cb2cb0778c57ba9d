"""Phase 1, second part: θ̂ where predictions happen, with one lengthscale per column.

A small random subset sees coarse structure only, while a prediction lives on its nearest rows. Here rows are predicted
from their nearest other rows, and θ̂ follows the gradient of their mean l* (Adam on minibatches). Neighbours are
searched in the metric that the lengthscales define, again at every round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Learner, Neighborhoods, Probes
from gpnn.engines.descent import SHARE, Adam, take_step, theta_of
from gpnn.engines.parallel import progress_bar

_BATCH = 128
_MOST_QUERIES = 2048  # per round; beyond, minibatches come back to the same rows
_NEIGHBORS = 31  # with the predicted row, four strips; 63 and 127 were no better
_RATE, _REACH = 0.1, 0.5  # of Adam: the longest step in one logarithm, and in all of them together
_MAP_RATE, _MAP_REACH = 0.05, 0.4  # in one element of a linear map, and in those of one row or column of it together
_MOST_MAPPED, _FEWEST_MAPPED = 128, 1500  # columns and rows, for a map to be learned
_MOST_OF_FULL, _ROWS_OF_ELEMENT = 40, 10  # columns whose map may have all its elements; rows for each of these,
_MOST_DIRECTIONS, _ROWS_OF_NUMBER = 8, 5  # else how many directions it may have; rows for each number in these
_PART = 16  # rows whose mean slope is one observation, where a map's promise is looked at
_AVERAGED = 4  # the mean of the last fourth of the steps is the result
_TRIED = 400  # rows that say where another kernel begins
_SHORTER, _NOISIER = (0.06, 0.12, 0.25, 0.5), (1.0, 5.0, 25.0)
_MOST_NEIGHBORS = 63  # of a prediction that judges


class ProbeSource(Protocol):
    """Probes, of which some are chosen by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, chosen) -> Probes: ...


class Surroundings(Protocol):
    """Rows (n, d) among which probes find their neighbours, in a metric that changes: a `Learner`, or a part of one."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def neighborhoods(self, probes: Probes, lengthscale: Array | float, n_neighbors: int) -> Neighborhoods: ...


def refine(
    learner: Surroundings,
    probes: ProbeSource,
    kernel: Kernel,
    start: Hyperparameters,
    rounds: tuple[int, ...],
    rng: np.random.Generator,
    progress: str | None = None,
    most_queries: int = _MOST_QUERIES,
) -> Hyperparameters:
    """θ̂ after as many Adam steps as `rounds` says, with neighbours found anew at the start of each round."""
    metric = (Lengthscales if kernel.broad is None else TwoMetrics)(learner.shape[1])
    return metric.params(_descend(metric, learner, probes, kernel, start, rounds, rng, progress, most_queries))


def start_in(
    learner: Surroundings, probes: ProbeSource, kernel: Kernel, known: Hyperparameters, rng: np.random.Generator
) -> Hyperparameters:
    """Where to begin with another kernel in a metric that is known: of a few factors of all lengthscales and of the
    noise, those that predict best from the same neighbours, with variances in between as they come out."""
    chosen = probes[rng.choice(len(probes), min(len(probes), _TRIED), replace=False)]
    n, d = learner.shape
    around = learner.neighborhoods(chosen, known.metric, min(_NEIGHBORS, n - 1))
    best, least = known, np.inf
    for shorter in _SHORTER:
        for noisier in _NOISIER:
            lengthscale = shorter * np.broadcast_to(known.lengthscale, d)
            params = Hyperparameters(lengthscale, known.kernel_variance, noisier * max(known.noise_variance, 1e-6))
            law, _ = around.predict(kernel, params)
            fine = np.isfinite(law.variance)
            scale = float(np.mean((chosen.y - law.mean)[fine] ** 2 / law.variance[fine])) if fine.any() else np.nan
            loss = np.mean(np.log(law.variance[fine])) + np.log(scale)
            if loss < least:
                best, least = params.scaled(scale), loss
    return best


def refine_map(
    learner: Learner,
    probes: ProbeSource,
    kernel: Kernel,
    start: Hyperparameters,
    rounds: tuple[int, ...],
    rng: np.random.Generator,
    progress: str | None = None,
) -> tuple[Array, Hyperparameters]:
    """The same for a map (d, d) of the rows, beyond one lengthscale for each column; θ̂ is for rows that went through
    it. Of many columns, it differs from these in few directions."""
    d = learner.shape[1]
    metric = LinearMap(d)
    if (rank := rank_of_map(*learner.shape)) < d:
        slopes = _slopes_in_map(learner, probes, kernel, start, rng)
        metric = LowRankMap(np.linalg.svd(slopes.mean(axis=0))[2][:rank].T)
    u = _descend(metric, learner, probes, kernel, start, rounds, rng, progress, _MOST_QUERIES)
    return metric(u), metric.params(u)


def rank_of_map(n: int, d: int) -> int:
    """How far a map may differ from lengthscales, as far as n rows of d columns can tell: d for all its elements, fewer
    for so many directions, 0 for no map at all."""
    if not 1 < d <= _MOST_MAPPED or n < _FEWEST_MAPPED:
        return 0
    if d <= _MOST_OF_FULL and n >= _ROWS_OF_ELEMENT * d * d:
        return d
    return min(_MOST_DIRECTIONS, d - 1, n // (_ROWS_OF_NUMBER * 2 * d))


def promise_of_map(
    learner: Learner, probes: ProbeSource, kernel: Kernel, params: Hyperparameters, rng: np.random.Generator
) -> float:
    """How much l* would fall, for each row, with a linear map: Σ(t² − 1)/2q over the slopes in its elements, from their
    means and standard errors over q rows. That is where one step by the Fisher information leads, less what noise
    would make of it. Of many columns, over the slopes in the directions that as many other rows call for."""
    slopes = _slopes_in_map(learner, probes, kernel, params, rng)
    if (rank := rank_of_map(*learner.shape)) < learner.shape[1]:
        known, slopes = np.array_split(slopes, 2)
        left, _, right = np.linalg.svd(known.mean(axis=0))
        slopes = np.einsum("ik,pij,kj->pk", left[:, :rank], slopes, right[:rank])
    variance = np.var(slopes, axis=0, ddof=1) / len(slopes)
    moved = variance > 0  # not the diagonal, nor columns without variance
    return float(np.sum(np.mean(slopes, axis=0)[moved] ** 2 / variance[moved] - 1) / (2 * _PART * len(slopes)))


def _slopes_in_map(
    learner: Learner, probes: ProbeSource, kernel: Kernel, params: Hyperparameters, rng: np.random.Generator
) -> Array:
    """Of l* in the elements (d, d) of a map, each the sum over a few rows."""
    d = learner.shape[1]
    metric = LinearMap(d)
    chosen = probes[rng.choice(len(probes), min(len(probes), _MOST_QUERIES), replace=False)]
    u = metric.start(params)
    around = learner.neighborhoods(chosen, metric(u), min(_NEIGHBORS, learner.shape[0] - 1))
    parts = [np.arange(first, first + _PART) for first in range(0, len(chosen) - _PART + 1, _PART)]
    return np.array([metric.slope(around, part, kernel, u, 1.0)[0][d + 2 :].reshape(d, d) for part in parts])


class Lengthscales:
    """The metric x/l. Parameters: the logarithms of l_1 … l_d, σ_f², σ_ξ²."""

    def __init__(self, d: int):
        self.d, self.size = d, d + 2
        self.rate: Array | float = min(_RATE, _REACH / np.sqrt(self.size))

    def start(self, params: Hyperparameters) -> Array:
        """Where to begin."""
        return np.log(replace(params, noise_variance=max(params.noise_variance, 1e-6)).as_vector(self.d))

    def params(self, u: Array) -> Hyperparameters:
        return Hyperparameters.from_vector(theta_of(u, self.d), self.d)

    def __call__(self, u: Array) -> Array | float:
        """What neighbours are searched in."""
        return self.params(u).metric

    def descend(
        self, around: Neighborhoods, kernel: Kernel, batches: NDArray[np.int64], u: Array, adam: Adam, typical: float
    ) -> tuple[Array, float]:
        """u after each step, and what innovations typically are: see `Neighborhoods.descend`."""
        return around.descend(kernel, batches, u, adam, typical)


class TwoMetrics(Lengthscales):
    """Of a sum of two kernels: x/l and x/L. Parameters: those of `Lengthscales`, the logarithms of L_1 … L_d, and that
    of share/(1 − share)."""

    def __init__(self, d: int):
        super().__init__(d)
        self.size = 2 * d + 3
        self.rate = min(_RATE, _REACH / np.sqrt(self.size))

    def start(self, params: Hyperparameters) -> Array:
        u = super().start(params)
        u[-1] -= np.log1p(-np.exp(u[-1]))
        return u


class LinearMap:
    """The metric (I + E)ᵀ(x/l), for functions of sums and differences of columns. Parameters: those of `Lengthscales`,
    and E, whose diagonal stays at 0."""

    def __init__(self, d: int):
        self.d, self.size = d, d + 2 + d * d
        self.rate = np.full(self.size, min(_MAP_RATE, _MAP_REACH / d))
        self.rate[: d + 2] = Lengthscales(d).rate

    def start(self, params: Hyperparameters) -> Array:
        return np.concatenate([Lengthscales(self.d).start(params), np.zeros(self.d**2)])

    def params(self, u: Array) -> Hyperparameters:
        """Of rows that went through the map."""
        kernel_variance, noise_variance = np.exp(u[self.d : self.d + 2])
        return Hyperparameters(np.ones(self.d), float(kernel_variance), float(noise_variance))

    def __call__(self, u: Array) -> Array:
        return np.exp(-u[: self.d, None]) * (np.eye(self.d) + self.elements(u[self.d + 2 :]))

    def descend(
        self, around: Neighborhoods, kernel: Kernel, batches: NDArray[np.int64], u: Array, adam: Adam, typical: float
    ) -> tuple[Array, float]:
        path = np.empty((len(batches), len(u)))
        for batch, after in zip(batches, path, strict=True):
            slope, count, innovation = self.slope(around, batch, kernel, u, typical)
            typical = take_step(adam, u, self.d, slope, count, innovation, typical)
            after[:] = u
        return path, typical

    def slope(self, around: Neighborhoods, batch, kernel: Kernel, u: Array, typical: float) -> tuple[Array, int, float]:
        """Of Σl* of the batch, for how many that could be computed, and their mean innovation."""
        d, x_map, variances = self.d, self(u), np.exp(u[self.d : self.d + 2])
        by_map, by_variances, count, innovation = around.map_gradient(
            batch, kernel, x_map, variances, SHARE, typical, fine=False
        )
        by_E = np.exp(-u[:d, None]) * by_map
        np.fill_diagonal(by_E, 0.0)
        by_own = self.in_own(by_E, u[d + 2 :])
        return np.concatenate([-np.sum(x_map * by_map, axis=1), by_variances * variances, by_own]), count, innovation

    def elements(self, own: Array) -> Array:
        """E (d, d), from the parameters that make it."""
        return own.reshape(self.d, self.d)

    def in_own(self, by_E: Array, own: Array) -> Array:
        """A slope in E as one in the parameters that make it."""
        return by_E.ravel()


class LowRankMap(LinearMap):
    """With E = UVᵀ but for its diagonal, where columns are many and E would have too many elements. V (d, r) begins
    with orthonormal columns, U with zeros."""

    def __init__(self, V: Array):
        super().__init__(len(V))
        self.V, self.rank = V, V.shape[1]
        self.size = self.d + 2 + 2 * V.size
        self.rate = np.full(self.size, min(_MAP_RATE, _MAP_REACH / np.sqrt(self.d)))
        self.rate[: self.d + 2] = Lengthscales(self.d).rate

    def start(self, params: Hyperparameters) -> Array:
        return np.concatenate([Lengthscales(self.d).start(params), np.zeros(self.V.size), self.V.ravel()])

    def elements(self, own: Array) -> Array:
        U, V = own.reshape(2, self.d, self.rank)
        E = U @ V.T
        np.fill_diagonal(E, 0.0)
        return E

    def in_own(self, by_E: Array, own: Array) -> Array:
        U, V = own.reshape(2, self.d, self.rank)
        return np.concatenate([(by_E @ V).ravel(), (by_E.T @ U).ravel()])


def _descend(
    metric: Lengthscales | LinearMap,
    learner: Surroundings,
    probes: ProbeSource,
    kernel: Kernel,
    start: Hyperparameters,
    rounds: tuple[int, ...],
    rng: np.random.Generator,
    progress: str | None,
    most_queries: int,
) -> Array:
    """The metric's parameters: the mean of the last steps."""
    m = min(_NEIGHBORS, learner.shape[0] - 1)
    if m < 1:
        raise InvalidInputError("Refinement needs at least two rows.")
    u = metric.start(start)
    adam = Adam(metric.rate, metric.size, n_steps=sum(rounds))
    typical = 1.0
    averaged, total = -(-sum(rounds) // _AVERAGED), np.zeros_like(u)
    with progress_bar(sum(rounds), progress) as bar:
        for n_steps in rounds:
            chosen = probes[rng.choice(len(probes), min(len(probes), most_queries, n_steps * _BATCH), replace=False)]
            neighborhoods = learner.neighborhoods(chosen, metric(u), m)
            size = min(_BATCH, len(chosen))
            batches = np.array([rng.choice(len(chosen), size, replace=False) for _ in range(n_steps)])
            path, typical = metric.descend(neighborhoods, kernel, batches, u, adam, typical)
            total += path[max(0, adam.left + n_steps - averaged) :].sum(axis=0)
            bar.update(n_steps)
    return total / averaged


def predict(learner: Learner, probes: Probes, kernel: Kernel, params: Hyperparameters) -> tuple[Prediction, Array]:
    """The probes' laws from a few of their nearest other rows, and the innovations of those: few are enough to compare
    candidates."""
    return learner.neighborhoods(probes, params.metric, _MOST_NEIGHBORS).predict(kernel, params)
