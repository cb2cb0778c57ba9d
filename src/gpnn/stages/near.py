"""The local process: each query predicted from its m nearest rows (equations 5–7), and calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine
from gpnn.stages.calibration import LocalScale
from gpnn.stages.whitening import Whitener

_NESTED = np.array([1, 2, 4, 8, 16, 64])


def nested_sizes(n_neighbors: int) -> NDArray[np.int64]:
    """Of sets of the nearest rows, from the nearest alone to all."""
    return np.append(_NESTED[n_neighbors > _NESTED], n_neighbors)


class Answer(NamedTuple):
    """Of the local process to some queries, in whitened units of y."""

    law: Prediction
    claimed: Array
    """The variances before scale and floor."""
    jitter: Array
    nested: Array
    """(q, k): the variances that it would claim from `nested_sizes` of the nearest rows."""


@dataclass(frozen=True)
class Near:
    """All that a law needs beside the rows, which an engine holds."""

    whitener: Whitener
    kernel: Kernel
    params: Hyperparameters
    n_neighbors: int
    floor: float = 0.0
    scale: LocalScale | None = None
    unbiased: bool = False

    def law(self, engine: Engine, X: Array, progress: Any = None) -> Answer:
        """Of rows X (q, d)."""
        X_star, sizes = engine.whiten(self.whitener, X), nested_sizes(self.n_neighbors)
        n_innovations = 0 if self.scale is None else self.scale.n_neighbors
        found = engine.path(X_star, sizes, self.kernel, self.params, None, n_innovations, progress)
        mean = found.mean[:, -1] * (self.params.unbiasing(self.n_neighbors) if self.unbiased else 1.0)
        claimed = Prediction(mean, found.variance[:, -1])
        return Answer(self.calibrated(claimed, found.innovations), claimed.variance, found.jitter, found.variance)

    def calibrated(self, claimed: Prediction, innovations: Array) -> Prediction:
        scale = 1.0 if self.scale is None else self.scale(innovations)
        return claimed.with_own(claimed.own * scale + self.floor)
