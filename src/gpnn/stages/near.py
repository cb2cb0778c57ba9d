"""The local process: each query predicted from its m nearest rows (equations 5–7), and calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpnn.common.kernels import Kernel
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine
from gpnn.stages.calibration import LocalScale
from gpnn.stages.whitening import Whitener


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

    def law(self, engine: Engine, X: Array, progress: Any = None) -> tuple[Prediction, Array, Array]:
        """Of rows X (q, d), in whitened units of y; the variances that it claims before scale and floor; jitters."""
        X_star, size = engine.whiten(self.whitener, X), np.array([self.n_neighbors])
        n_innovations = 0 if self.scale is None else self.scale.n_neighbors
        found = engine.path(X_star, size, self.kernel, self.params, None, n_innovations, progress)
        mean = found.mean[:, 0] * (self.params.unbiasing(self.n_neighbors) if self.unbiased else 1.0)
        claimed = Prediction(mean, found.variance[:, 0])
        return self.calibrated(claimed, found.innovations), claimed.variance, found.jitter

    def calibrated(self, claimed: Prediction, innovations: Array) -> Prediction:
        scale = 1.0 if self.scale is None else self.scale(innovations)
        return claimed.with_own(claimed.own * scale + self.floor)
