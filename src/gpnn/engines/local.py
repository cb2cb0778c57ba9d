"""What every engine's solver shares: what a solution is, when a system counts as singular, when float32 is enough.

A solver of this machine is a function of the queries, their neighbours and the model. It runs in the calling thread,
holds no interpreter lock if it is compiled, and its answer for a query depends on that query's rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from gpnn.common.errors import InvalidInputError
from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters

LOWEST_PIVOT = 1e-13
"""Relative to σ_f²: a factor with a smaller pivot is rounding noise, and the system counts as singular."""

JITTERS = (0.0, *10.0 ** np.arange(-10, -3))
"""What is added to the diagonal of a singular system, relative to σ_f²: the first that helps, never more than 1e-4."""

TOLERANCE = 7e-4
"""Of means in predictive standard deviations, of variances in themselves: a query whose rounding errors could be larger
in float32 is solved again in float64."""

ROUNDING = {"exponential": (20, 20), "rbf": (30, 80), "matern32": (60, 150), "matern52": (80, 500)}
"""What float32's error estimates, of the mean and of the variance, are multiplied by before they are held against the
tolerance: at least twice what would have kept every error below 1e-3, over real data in 2 to 9 dimensions, lengthscales
of 0.03 to 100 and σ_f²/σ_ξ² of 10 to 10⁷ (`benchmarks/precision.py`)."""


def rounding(kernel: Kernel) -> tuple[int, int]:
    """For a sum of kernels, the larger of its parts'."""
    first, *second = (ROUNDING[part] for part in kernel.name.split("+"))
    return max([first[0], *(of[0] for of in second)]), max([first[1], *(of[1] for of in second)])


FARTHEST = 1e15
"""What whitened values are cut at: far outside any data, and its square still fits float32."""

EPSILON = 6e-8
"""float32's unit roundoff."""


@dataclass(frozen=True)
class Noise:
    """What is known of each row's noise, whose variance is then σ_ξ²·share + known: both (n,), in whitened units."""

    share: Array
    """1/w for a row of weight w."""
    known: Array

    def __getitem__(self, rows) -> Noise:
        return Noise(self.share[rows], self.known[rows])

    def variance(self, params: Hyperparameters) -> Array:
        return params.noise_variance * self.share + self.known

    @property
    def weights(self) -> Array | None:
        """None where all are 1."""
        return None if (self.share == 1).all() else 1 / self.share

    def in_units_of(self, y_std: float) -> Noise:
        """Of y divided by y_std."""
        return Noise(self.share, self.known / y_std**2)

    def scaled(self, alpha: float) -> Noise:
        """As it is to a process whose variances are multiplied by α: its means do not change."""
        return Noise(self.share, alpha * self.known)

    @property
    def columns(self) -> Array:
        """(n, 2), for compiled code."""
        return np.stack([self.share, self.known], axis=-1)


class LocalSolution(NamedTuple):
    """Of q queries, in whitened units."""

    mean: Array
    variance: Array
    """Of y*, noise included."""
    jitter: Array
    """What each system needed, relative to σ_f²."""
    innovations: Array
    """(q, m): how far each neighbour lies from what the nearer ones say of it, squared and in units of its predictive
    variance. They average 1 where the data are as rough and as noisy as θ̂ says."""


class LocalSolver(Protocol):
    def __call__(
        self, X_star: Array, neighbors: Array, y_neighbors: Array, kernel: Kernel, params: Hyperparameters
    ) -> LocalSolution:
        """X_star (q, d), neighbors (q, m, d) nearest first, y_neighbors (q, m) → the solution."""
        ...


def make_solver(name: str) -> LocalSolver:
    """ "auto" is "cpu", the compiled solver; "reference" is the slow float64 one that the others are held to."""
    from gpnn.engines import reference
    from gpnn.engines.cpu import solver

    solvers: dict[str, LocalSolver] = {"auto": solver.solve, "cpu": solver.solve, "reference": reference.solve}
    if name not in solvers:
        raise InvalidInputError(f"Unknown solver {name!r}. Choose one of: {', '.join(solvers)}.")
    return solvers[name]
