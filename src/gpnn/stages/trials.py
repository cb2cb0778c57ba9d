"""Small models, learned in few steps: enough to compare what a fit could begin with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpnn.common.kernels import get_kernel
from gpnn.common.scales import TargetScale
from gpnn.common.types import Array, Hyperparameters, Prediction
from gpnn.engines import Engine, Probes
from gpnn.stages.calibration import fit_calibration
from gpnn.stages.holdout import Rows
from gpnn.stages.refinement import predict, refine
from gpnn.stages.selection import Sample, Space
from gpnn.stages.whitening import Whitener

KERNEL, WHITENING = "matern32", "ranks"  # good enough everywhere to compare by
_STEPS = (40, 60, 100)
LONGER = (100, 200, 400)


@dataclass(frozen=True, eq=False)
class Trial:
    """Rows to predict from, judges, and θ̂, for y on one scale."""

    scale: TargetScale
    whitening: str
    whitener: Whitener
    space: Space
    params: Hyperparameters
    y: Array
    """Of the judges."""

    @classmethod
    def begun(
        cls,
        X: Array,
        y: Array,
        scale: TargetScale,
        learn: Rows,
        judge: Rows,
        engine: Engine,
        whitening: str = WHITENING,
        steps: tuple[int, ...] = _STEPS,
    ) -> Trial:
        rng, t = np.random.default_rng(0), scale(y)
        whitener = Whitener.fit(X[learn], t[learn], whitening, warn=False)
        probes = Probes(X[learn], t[learn], np.arange(len(learn))), Probes(X[judge], t[judge], np.full(len(judge), -1))
        space = Sample(X[learn], t[learn], *probes).whitened(whitener, rng, engine)
        start = space.phase_1(KERNEL, rng)
        params = refine(space.learner, space.learn, get_kernel(KERNEL), start, steps, rng)
        return cls(scale, whitening, whitener, space, params, y[judge])

    def law(self, lengthscale: Array | float) -> tuple[Prediction, Prediction]:
        """Of the judges, predicted in that metric: of y, and of y on the scale."""
        params, y = replace(self.params, lengthscale=lengthscale), self.space.judge.y
        law, innovations = predict(self.space.learner, self.space.judge, get_kernel(KERNEL), params)
        inner = self.whitener.inverse(fit_calibration(y, law, innovations)(law, innovations))
        return Prediction.through(self.scale, inner), inner

    def losses(self, lengthscale: Array | float) -> tuple[Array, Array]:
        """Of the judges, predicted in that metric: squared errors and negative log densities, in the units of y."""
        law, inner = self.law(lengthscale)
        t = self.scale(self.y)
        surprise = 0.5 * ((t - inner.mean) ** 2 / inner.variance + np.log(2 * np.pi * inner.variance))
        return (self.y - law.mean) ** 2, surprise - self.scale.log_slope(self.y)
