"""Phase 1, second part: θ̂ where predictions happen, with one lengthscale per column.

A small random subset sees coarse structure only, while a prediction lives on its nearest rows. Here rows are predicted
from their nearest other rows, and θ̂ follows the gradient of their mean l* (Adam on minibatches). Neighbours are
searched in the metric that the lengthscales define, again at every round.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gpnn.common.errors import InvalidInputError
from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Learner, Neighborhoods, Probes
from gpnn.engines.parallel import progress_bar

_BATCH = 128
_MOST_QUERIES = 2048  # per round; beyond, minibatches come back to the same rows
_SHARE = 0.3  # of the typical scale in that of a neighbourhood
_NEIGHBORS = 31  # with the predicted row, four strips; 63 and 127 were no better
_RATE, _REACH = 0.1, 0.5  # of Adam: the longest step in one logarithm, and in all of them together
_AVERAGED = 4  # the mean of the last fourth of the steps is the result
_LOWEST = np.log(1e-6)  # of the noise variance, as in phase 1
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
    n, d = learner.shape
    m = min(_NEIGHBORS, n - 1)
    if m < 1:
        raise InvalidInputError("Refinement needs at least two rows.")
    u = np.log([*np.broadcast_to(start.lengthscale, d), start.kernel_variance, max(start.noise_variance, 1e-6)])
    adam = Adam(len(u), n_steps=sum(rounds))
    typical = 1.0
    averaged, total = -(-sum(rounds) // _AVERAGED), np.zeros_like(u)
    with progress_bar(sum(rounds), progress) as bar:
        for n_steps in rounds:
            chosen = probes[rng.choice(len(probes), min(len(probes), most_queries, n_steps * _BATCH), replace=False)]
            neighborhoods = learner.neighborhoods(chosen, np.exp(u[:d]), m)
            for _ in range(n_steps):
                batch = rng.choice(len(chosen), min(_BATCH, len(chosen)), replace=False)
                theta = np.exp(u)
                gradient, count, innovation = neighborhoods.gradient(batch, kernel, theta, _SHARE, typical)
                if count == 0:  # nowhere positive definite: more noise will help
                    slope = np.zeros(d + 2)
                    slope[-1] = -1.0
                else:
                    typical += 0.1 * (innovation - typical)
                    slope = gradient * theta / count
                u += adam.step(slope)
                u[-1] = max(u[-1], _LOWEST)
                total += u if adam.left < averaged else 0.0
                bar.update()
    theta = np.exp(total / averaged)
    return Hyperparameters(theta[:d], float(theta[d]), float(theta[d + 1]))


def predict(learner: Learner, probes: Probes, kernel: Kernel, params: Hyperparameters) -> tuple[Prediction, Array]:
    """The probes' laws from a few of their nearest other rows, and the innovations of those: few are enough to compare
    candidates."""
    return learner.neighborhoods(probes, params.lengthscale, _MOST_NEIGHBORS).predict(kernel, params)


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
