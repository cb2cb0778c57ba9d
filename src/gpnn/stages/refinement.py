"""Phase 1, second part: θ̂ where predictions happen, with one lengthscale per column.

A small random subset sees coarse structure only, while a prediction lives on its nearest rows. Here rows are predicted
from their nearest other rows, and θ̂ follows the gradient of their mean l* (Adam on minibatches). Neighbours are
searched in the metric that the lengthscales define, again at every round.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpnn.common.errors import InvalidInputError
from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines.compiled.covariance import KERNEL_NUMBERS
from gpnn.engines.compiled.likelihood import predictive_likelihoods, scratch
from gpnn.engines.cpu.neighbors import IVF, Flat, KDTree, automatic_index, nearest_others
from gpnn.engines.cpu.neighbors.cells import Rows
from gpnn.engines.parallel import for_each_block, progress_bar

_BATCH = 128
_MOST_QUERIES = 2048  # per round; beyond, minibatches come back to the same rows
_SHARE = 0.3  # of the typical scale in that of a neighbourhood
_NEIGHBORS = 31  # with the predicted row, four strips; 63 and 127 were no better
_RATE, _REACH = 0.1, 0.5  # of Adam: the longest step in one logarithm, and in all of them together
_AVERAGED = 4  # the mean of the last fourth of the steps is the result
_LOWEST = np.log(1e-6)  # of the noise variance, as in phase 1
_MOST_NEIGHBORS = 63  # of a prediction that judges
_SEARCH, _PREDICTED = 64, 500  # queries that a thread works on at a time
_STRETCH = 3.0  # of one column against another, at which an index is built anew


@dataclass(frozen=True)
class Probes:
    """Rows whose outcome is known and which are predicted as if it were not: X (q, d), y (q,).

    own (q,): the number of each among the rows that it may be predicted from, or −1 if it is not one of them.
    """

    X: Array
    y: Array
    own: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, chosen) -> Probes:
        return Probes(self.X[chosen], self.y[chosen], self.own[chosen])


def refine(
    searcher: Searcher,
    y: Array,
    probes: Probes,
    kernel: Kernel,
    start: Hyperparameters,
    rounds: tuple[int, ...],
    rng: np.random.Generator,
    progress: str | None = None,
) -> Hyperparameters:
    """θ̂ after as many Adam steps as `rounds` says, with neighbours found anew at the start of each round.

    y (n,): of the searcher's rows, which probes are predicted from.
    """
    rows = searcher.rows
    d = rows.shape[1]
    m = min(_NEIGHBORS, len(rows) - 1)
    if m < 1:
        raise InvalidInputError("Refinement needs at least two rows.")
    work, gradient = scratch(m + 1, d), np.empty(d + 2)
    outcomes, innovations = np.empty((_BATCH, 2)), np.empty((_BATCH, m))
    u = np.log([*np.broadcast_to(start.lengthscale, d), start.kernel_variance, max(start.noise_variance, 1e-6)])
    adam = Adam(len(u), n_steps=sum(rounds))
    typical = 1.0
    averaged, total = -(-sum(rounds) // _AVERAGED), np.zeros_like(u)
    with progress_bar(sum(rounds), progress) as bar:
        for n_steps in rounds:
            chosen = probes[rng.choice(len(probes), min(len(probes), _MOST_QUERIES, n_steps * _BATCH), replace=False)]
            neighbors = searcher(chosen, np.exp(u[:d]), m)
            for _ in range(n_steps):
                batch = rng.choice(len(chosen), min(_BATCH, len(chosen)), replace=False)
                theta = np.exp(u)
                _, count = predictive_likelihoods(
                    KERNEL_NUMBERS[kernel.name], chosen.X[batch], chosen.y[batch], rows, y, neighbors[batch],
                    theta[:d].copy(), theta[d], theta[d + 1], *work, gradient, outcomes, innovations,
                    _SHARE, typical,
                )  # fmt: skip
                typical += 0.1 * (innovations[: len(batch), 1:].mean() - typical) * (count > 0)
                if count == 0:  # nowhere positive definite: more noise will help
                    slope = np.zeros(d + 2)
                    slope[-1] = -1.0
                else:
                    slope = gradient * theta / count
                u += adam.step(slope)
                u[-1] = max(u[-1], _LOWEST)
                total += u if adam.left < averaged else 0.0
                bar.update()
    theta = np.exp(total / averaged)
    return Hyperparameters(theta[:d], float(theta[d]), float(theta[d + 1]))


def predict(
    searcher: Searcher, y: Array, probes: Probes, kernel: Kernel, params: Hyperparameters
) -> tuple[Prediction, Array]:
    """The probes' laws (eqs. 5–7) from a few of their nearest other rows, infinitely wide where K is singular, and the
    innovations of those rows.

    For comparisons between candidates: one compiled function serves all kernels, and few neighbours are enough.
    """
    rows = searcher.rows
    m, d = min(_MOST_NEIGHBORS, len(rows) - 1), rows.shape[1]
    neighbors = searcher(probes, params.lengthscale, m)
    outcomes, innovations = np.tile([0.0, np.inf], (len(probes), 1)), np.ones((len(probes), m))

    def one(part: slice) -> None:
        predictive_likelihoods(
            KERNEL_NUMBERS[kernel.name], probes.X[part], probes.y[part], rows, y, neighbors[part],
            np.broadcast_to(params.lengthscale, d).copy(), params.kernel_variance, params.noise_variance,
            *scratch(m + 1, d), np.empty(d + 2), outcomes[part], innovations[part],
        )  # fmt: skip

    for_each_block(one, len(probes), _PREDICTED, searcher.n_jobs)
    return Prediction(probes.y - outcomes[:, 0], outcomes[:, 1]), innovations


class Searcher:
    """Finds nearest rows in a metric that changes: the index is built anew only when columns were stretched much."""

    def __init__(self, rows: NDArray[np.float32], seed: int, n_jobs: int | None = None):
        self.rows, self.seed, self.n_jobs = rows, seed, n_jobs
        self._lengthscale: Array = np.ones(rows.shape[1])  # that of the index
        self._index: KDTree | Flat | IVF | None = None

    def branch(self, n_jobs: int | None) -> Searcher:
        """One that begins with the same index and goes its own way."""
        other = copy.copy(self)
        other.n_jobs = n_jobs
        return other

    def prepare(self, probes: Probes) -> None:
        """Build the index now, for branches to share; probes are rows like those that will be asked for."""
        self._in_metric(self._lengthscale, probes)

    def __call__(self, probes: Probes, lengthscale: Array | float, n_neighbors: int) -> NDArray[np.int64]:
        """Row numbers (q, m) of each probe's nearest other rows when columns are divided by the lengthscale."""
        n, d = self.rows.shape
        m = min(n_neighbors, n - 1)
        index = self._in_metric(np.broadcast_to(np.asarray(lengthscale, dtype=float), d), probes)
        X = (probes.X / self._lengthscale).astype(np.float32)
        found = np.empty((len(probes), m), np.int64)

        def one(part: slice) -> None:
            found[part] = index.order[nearest_others(index, X[part], probes.own[part], m)]

        for_each_block(one, len(probes), _SEARCH, self.n_jobs)
        return found

    def _in_metric(self, lengthscale: Array, probes: Probes) -> KDTree | Flat | IVF:
        change = self._lengthscale / lengthscale
        spread = change.max() / change.min()
        if self._index is None or spread > _STRETCH:
            n, d = self.rows.shape
            scaled = Rows.allocate(n, d)
            np.divide(self.rows, lengthscale, out=scaled, casting="same_kind")
            m = min(_MOST_NEIGHBORS + 1, n)
            like_queries = (probes.X[:500] / lengthscale).astype(np.float32)
            self._index = automatic_index(n, d, m).build(scaled, m, like_queries, self.n_jobs, self.seed)
            self._lengthscale = lengthscale
        elif spread > 1 + 1e-6:  # a factor common to all columns changes no neighbour
            self._index = self._index.stretched(change.astype(np.float32))
            self._lengthscale = lengthscale
        return self._index


class Adam:
    """Steps of Adam whose length falls to zero over the second half.

    Where columns are many, most of them say little and their steps follow noise: shorter ones keep the metric from
    going astray.
    """

    def __init__(self, size: int, n_steps: int):
        self.first, self.second = np.zeros(size), np.zeros(size)
        self.n_steps, self.number = n_steps, 0
        self.rate = min(_RATE, _REACH / np.sqrt(size))

    @property
    def left(self) -> int:
        return self.n_steps - self.number

    def step(self, gradient: Array) -> Array:
        self.number += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.99 * self.second + 0.01 * gradient**2
        rate = self.rate * min(1.0, 2 * (1 - self.number / self.n_steps) + 0.05)
        mean, scale = self.first / (1 - 0.9**self.number), np.sqrt(self.second / (1 - 0.99**self.number))
        return -rate * mean / (scale + 1e-8)
